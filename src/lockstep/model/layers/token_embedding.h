// Token ids -> hidden states; and the tables of rotary positions that all decoder layers share.
#pragma once

#include <string>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// Reads input_ids [B,T]; writes hidden [B,T,D].
class TokenEmbedding final : public Block {
 public:
  TokenEmbedding(std::string name, const TextConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;
};

/// Reads input_ids [B,T] and positions [B,T] or [axes,B,T] (absent: counted from the tokens in the cache); writes cos,
/// sin [B or 1, T, H] f32.
class RopeTables final : public Block {
 public:
  RopeTables(std::string name, const TextConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  RopeConfig rope_;
};

}  // namespace lockstep
