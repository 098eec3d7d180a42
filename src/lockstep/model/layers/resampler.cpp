// N slices, P patches of all of them, L of one, V the tower's width, D the text's, Q queries, A heads, H head size.
// Source: MiniCPM-V 2.6 resampler.py Resampler; OpenBMB/OmniLMM omnilmm/model/resampler.py Resampler.
#include "lockstep/model/layers/resampler.h"

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

Resampler::Resampler(std::string name, const ResamplerConfig& config)
    : Block(std::move(name), Component::kProjector, kPictures), config_(config) {
  const int64_t hidden = config.text_hidden;
  param("query", {config.queries, hidden});
  if (config.vision_hidden != hidden) param("kv_proj.weight", {hidden, config.vision_hidden});
  param("attn.in_proj_weight", {3 * hidden, hidden});  // of queries, keys and values
  param("attn.in_proj_bias", {3 * hidden});
  param("attn.out_proj.weight", {hidden, hidden});
  param("attn.out_proj.bias", {hidden});
  for (const char* norm : {"ln_q", "ln_kv", "ln_post"}) {
    param(std::string(norm) + ".weight", {hidden});
    param(std::string(norm) + ".bias", {hidden});
  }
  param("proj", {hidden, hidden});
  std::vector<std::string> slots{"vision", "slice_ends", "patch_rows", "patch_columns", "place_waves"};
  if (config.query_edge > 0) slots.emplace_back("query_waves");
  reads(std::move(slots));
  writes({"media"});
}

Tensor Resampler::norm(const Params& params, const std::string& local, const Tensor& x) const {
  return fn::layer_norm(x, params[local + ".weight"], params[local + ".bias"], config_.norm_eps);
}

/// The learnt queries; those on a square have the waves of their column in front, of their row behind.
Tensor Resampler::queries(const Params& params, const Flow& in) const {
  const Tensor query_QD = norm(params, "ln_q", params["query"]);
  const int64_t edge = config_.query_edge;
  if (edge == 0) return query_QD;
  const Tensor waves = in["query_waves"].to(query_QD.scalar_type());
  const Tensor columns = waves.unsqueeze(0).expand({edge, -1, -1}), rows = waves.unsqueeze(1).expand({-1, edge, -1});
  return query_QD.add(at::cat({columns, rows}, -1).flatten(0, 1));
}

Flow Resampler::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& patches_PV = in["vision"];
  const bool same = config_.vision_hidden == config_.text_hidden;
  const Tensor values_PD = norm(params, "ln_kv", same ? patches_PV : params.linear("kv_proj", patches_PV));
  // A key knows where its patch stands, the column first; a value does not.
  const Tensor waves = in["place_waves"].to(values_PD.scalar_type());
  const Tensor places_PD =
      at::cat({waves.index_select(0, in["patch_columns"]), waves.index_select(0, in["patch_rows"])}, -1);
  const Tensor found_NQD = attend(params, queries(params, in), values_PD.add(places_PD), values_PD, in["slice_ends"]);
  Tensor media_NQD = fn::linear(norm(params, "ln_post", found_NQD), params["proj"].t());  // stored as [in, out]
  tap(context, "resampler", media_NQD);
  return {{"media", std::move(media_NQD)}};
}

Tensor Resampler::attend(const Params& params, const Tensor& queries_QD, const Tensor& keys_PD, const Tensor& values_PD,
                         const Tensor& ends_N) const {
  const auto w = params["attn.in_proj_weight"].chunk(3);
  const auto b = fn::constant_key_bias(params["attn.in_proj_bias"]).chunk(3);
  const Tensor q_QD = fn::linear(queries_QD, w[0], b[0]);
  const Tensor k_PD = fn::linear(keys_PD, w[1], b[1]), v_PD = fn::linear(values_PD, w[2], b[2]);
  const auto heads = [&](const Tensor& x_NTD) { return x_NTD.unflatten(-1, {config_.heads, -1}).transpose(1, 2); };
  const auto* end = ends_N.const_data_ptr<int64_t>();
  const int64_t count = ends_N.size(0);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count;) {  // slices of one length that follow each other, in one call
    const int64_t length = end[i] - begin;
    int64_t n = 1;
    while (i + n < count && end[i + n] - end[i + n - 1] == length) ++n;
    const auto slices_NLD = [&](const Tensor& x_PD) {
      return x_PD.narrow(0, begin, n * length).unflatten(0, {n, length});
    };
    const Tensor q_NQD = q_QD.unsqueeze(0).expand({n, -1, -1}).contiguous();
    parts.push_back(fn::merge_heads(fn::attention(heads(q_NQD), heads(slices_NLD(k_PD)), heads(slices_NLD(v_PD)), {})));
    begin += n * length;
    i += n;
  }
  check(begin == k_PD.size(0), "slices end with the last patch");
  const Tensor found_NQD = parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  return params.linear("attn.out_proj", found_NQD);
}

}  // namespace lockstep
