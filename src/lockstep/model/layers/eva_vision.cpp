// N pictures, P patches (and the class token), D model, A heads, H head size.
// Source: timm 1.0 models/eva.py Eva, EvaBlockPostNorm; layers/pos_embed.py resample_abs_pos_embed.
#include "lockstep/model/layers/eva_vision.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/place_table.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

EvaEmbeddings::EvaEmbeddings(std::string name, const EvaVisionConfig& config)
    : Block(name + ".patch_embed", Component::kVision, kPictures), config_(config) {
  param("proj.weight", {config.hidden, config.channels, config.patch, config.patch});
  param("proj.bias", {config.hidden});
  param_at("cls_token", name + ".cls_token", {1, 1, config.hidden});
  param_at("pos_embed", name + ".pos_embed", {1, config.table_edge() * config.table_edge() + 1, config.hidden});
  reads({"pixel_values", "position_weights"});
  writes({"vision"});
}

Flow EvaEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& w = params["proj.weight"];
  const Tensor pixels = in["pixel_values"].to(w.scalar_type());
  const int64_t size = config_.image_size;
  if (pixels.dim() != 4 || pixels.size(2) != size || pixels.size(3) != size) {
    throw checkpoint_error(fmt::format("{}: expected pictures of {} x {} pixels (config.json image_size), found {}",
                                       name(), size, size, fmt::join(pixels.sizes(), " x ")));
  }
  const Tensor patches_NPD = params.linear("proj", fn::patches_of(pixels, w.size(2)));
  const Tensor class_N1D = params["cls_token"].expand({pixels.size(0), 1, config_.hidden});
  const Tensor& table = params["pos_embed"];
  const bool fits = config_.table_edge() == config_.edge();
  const Tensor positions_1PD = fits ? table : resized_table(table, in["position_weights"]);
  Tensor embedded_NPD = at::cat({class_N1D, patches_NPD}, 1).add(positions_1PD);
  tap(context, "vision_embeddings", embedded_NPD);
  return {{"vision", std::move(embedded_NPD)}};
}

EvaLayer::EvaLayer(std::string name, const EvaVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  const int64_t hidden = config.hidden;
  param("attn.qkv.weight", {3 * hidden, hidden});
  param("attn.q_bias", {hidden});
  param("attn.v_bias", {hidden});
  param("attn.proj.weight", {hidden, hidden});
  param("attn.proj.bias", {hidden});
  param("mlp.fc1.weight", {config.mlp, hidden});
  param("mlp.fc1.bias", {config.mlp});
  param("mlp.fc2.weight", {hidden, config.mlp});
  param("mlp.fc2.bias", {hidden});
  for (const char* norm : {"norm1", "norm2"}) {
    param(std::string(norm) + ".weight", {hidden});
    param(std::string(norm) + ".bias", {hidden});
  }
  reads({"vision"});
  writes({"vision"});
}

Flow EvaLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_NPD = in["vision"];
  const double eps = config_.norm_eps;
  const Tensor h_NPD =
      x_NPD.add(fn::layer_norm(attend(params, x_NPD), params["norm1.weight"], params["norm1.bias"], eps));
  const Tensor f_NPF = fn::activation("gelu", params.linear("mlp.fc1", h_NPD));
  const Tensor grown_NPD = params.linear("mlp.fc2", f_NPF);
  Tensor out_NPD = h_NPD.add(fn::layer_norm(grown_NPD, params["norm2.weight"], params["norm2.bias"], eps));
  tap(context, name() + ".out", out_NPD);
  return {{"vision", std::move(out_NPD)}};
}

Tensor EvaLayer::attend(const Params& params, const Tensor& x_NPD) const {
  const Tensor& q_bias = params["attn.q_bias"];
  const Tensor bias = at::cat({q_bias, q_bias.new_zeros(q_bias.sizes()), params["attn.v_bias"]});  // keys have none
  const Tensor qkv = params.linear("attn.qkv", x_NPD, {.bias = &bias});
  const auto parts_NPAH = qkv.unflatten(-1, {3, config_.heads, config_.hidden / config_.heads}).unbind(2);
  const Tensor o_NAPH =
      fn::attention(parts_NPAH[0].transpose(1, 2), parts_NPAH[1].transpose(1, 2), parts_NPAH[2].transpose(1, 2), {});
  return params.linear("attn.proj", fn::merge_heads(o_NAPH));
}

EvaNorm::EvaNorm(std::string name, const EvaVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  param("weight", {config.hidden});
  param("bias", {config.hidden});
  reads({"vision"});
  writes({"vision"});
}

Flow EvaNorm::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor out_NPD = fn::layer_norm(in["vision"], params["weight"], params["bias"], config_.norm_eps);
  tap(context, "vision_features", out_NPD);
  return {{"vision", out_NPD.narrow(1, 1, out_NPD.size(1) - 1).flatten(0, 1)}};
}

}  // namespace lockstep
