#include "lockstep/model/layers/token_embedding.h"

#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "lockstep/model/layers/axis_rope.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

TokenEmbedding::TokenEmbedding(std::string name, const TextConfig& config)
    : Block(std::move(name), Component::kLlm, Modality::kText) {
  param("weight", {config.vocab, config.hidden});
  reads({"input_ids"});
  writes({"hidden"});
  never_recompute();
}

Flow TokenEmbedding::forward(const Params& params, const Flow& in, const Context&) const {
  return {{"hidden", fn::embedding(in["input_ids"], params["weight"])}};
}

RopeTables::RopeTables(std::string name, const TextConfig& config)
    : Block(std::move(name), Component::kLlm, Modality::kText), rope_(config.rope) {
  reads({"input_ids", "positions"});
  writes({"cos", "sin"});
  never_recompute();
}

Flow RopeTables::forward(const Params&, const Flow& in, const Context&) const {
  const Tensor& ids_BT = in["input_ids"];
  const Tensor* given = in.find("positions");
  if (given != nullptr && given->dim() == 3) {
    auto [cos, sin] = axis_rope(*given, rope_);
    return {{"cos", std::move(cos)}, {"sin", std::move(sin)}};
  }
  const Tensor positions_BT = given != nullptr ? *given : at::arange(ids_BT.size(1), ids_BT.options()).unsqueeze(0);
  const Tensor frequencies = from_values(std::span<const float>(rope_.inverse_frequencies),
                                         {static_cast<int64_t>(rope_.inverse_frequencies.size())});
  auto [cos, sin] = fn::rope_tables(positions_BT, sent_to(frequencies, ids_BT.device()), rope_.scaling, Dtype::kF32);
  return {{"cos", std::move(cos)}, {"sin", std::move(sin)}};
}

}  // namespace lockstep
