#include "lockstep/model/layers/token_embedding.h"

#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "lockstep/model/layers/axis_rope.h"
#include "lockstep/model/layers/embedding_noise.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Rows of those ids that there are, zeros for the others (-1).
Tensor there_of(const Tensor& ids, const Tensor& rows) {
  return rows.mul(to_dtype(ids.ge(0), dtype_of(rows)).unsqueeze(-1));
}

}  // namespace

TokenEmbedding::TokenEmbedding(std::string name, const TextConfig& config)
    : Block(std::move(name), Component::kLlm, Modality::kText) {
  lookup_table("weight", {config.vocab, config.hidden});
  reads({"input_ids", "speech_text_ids"});
  writes({"hidden", "speech_text"});
  never_recompute();
}

Flow TokenEmbedding::forward(const Params& params, const Flow& in, const Context& context) const {
  Flow out{{"hidden", with_noise(params.rows("", in["input_ids"]), context.noise)}};
  if (const Tensor* spoken_L = in.find("speech_text_ids")) {
    out.set("speech_text", embed_some(params, "", *spoken_L));
  }
  return out;
}

Tensor embed_some(const Params& params, std::string_view module, const Tensor& ids) {
  return there_of(ids, params.rows(module, ids.clamp_min(0)));
}

Tensor some_rows(const Tensor& ids, const Tensor& table) {
  return there_of(ids, fn::embedding(ids.clamp_min(0), table));
}

RopeTables::RopeTables(std::string name, const TextConfig& config, DecoderPlace place)
    : Block(std::move(name), place.component, place.runs_on), rope_(config.rope), place_(std::move(place)) {
  reads({place_.slot("input_ids"), place_.slot("positions")});
  writes({place_.slot("cos"), place_.slot("sin")});
  never_recompute();
}

Flow RopeTables::forward(const Params&, const Flow& in, const Context&) const {
  const Tensor* given = in.find(place_.slot("positions"));
  const auto tables = [&](std::pair<Tensor, Tensor> made) -> Flow {
    return {{place_.slot("cos"), std::move(made.first)}, {place_.slot("sin"), std::move(made.second)}};
  };
  if (given != nullptr && given->dim() == 3) return tables(axis_rope(*given, rope_));
  const auto counted = [&] {
    const Tensor& ids_BT = in[place_.slot("input_ids")];
    return at::arange(ids_BT.size(1), ids_BT.options()).unsqueeze(0);
  };
  const Tensor positions_BT = given != nullptr ? *given : counted();
  const Tensor frequencies = from_values(std::span<const float>(rope_.inverse_frequencies),
                                         {static_cast<int64_t>(rope_.inverse_frequencies.size())});
  return tables(fn::rope_tables(positions_BT, sent_to(frequencies, positions_BT.device()), rope_.scaling, Dtype::kF32));
}

}  // namespace lockstep
