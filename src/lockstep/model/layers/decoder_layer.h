// The pre-norm decoder layer of Llama, Qwen2, Qwen3 and Mistral.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/decoder_place.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// Reads hidden [B,T,D], cos, sin [B or 1, T, H], mask [B,1,T,S] (absent: causal); writes hidden. Taps
/// "<name>.attn_out",
/// "<name>.mlp_out", "<name>.out"; layer 0 also taps its input as "inputs_embeds". Slots and that tap are named as its
/// place says.
class DecoderLayer final : public Block {
 public:
  /// `index`: of the layer in the KV cache.
  DecoderLayer(std::string name, const TextConfig& config, int64_t index, DecoderPlace place = {});
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  bool one_more(const Context& context) const;
  Tensor attend(const Params& params, const Tensor& x_BTD, const Flow& in, const Context& context) const;

  TextConfig config_;
  DecoderPlace place_;
  int64_t index_, window_;
};

}  // namespace lockstep
