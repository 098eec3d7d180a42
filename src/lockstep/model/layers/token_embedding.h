// Token ids -> hidden states; and the tables of rotary positions that all decoder layers share.
#pragma once

#include <string>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/decoder_place.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// Reads input_ids [B,T]; writes hidden [B,T,D]. Where a talker is to speak (speech_text_ids [L] are there, -1: no text) it
/// also writes what those embed as, speech_text [L,D].
class TokenEmbedding final : public Block {
 public:
  TokenEmbedding(std::string name, const TextConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;
};

/// Reads input_ids [B,T] and positions [B,T] or [axes,B,T] (absent: counted from the tokens in the cache); writes cos,
/// sin [B or 1, T, H] f32. A talker's positions are always there.
class RopeTables final : public Block {
 public:
  RopeTables(std::string name, const TextConfig& config, DecoderPlace place = {});
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  RopeConfig rope_;
  DecoderPlace place_;
};

/// Rows of a table of the block, or of any [V,D], zeros for an id of -1.
Tensor embed_some(const Params& params, std::string_view module, const Tensor& ids);
Tensor some_rows(const Tensor& ids, const Tensor& table);

}  // namespace lockstep
