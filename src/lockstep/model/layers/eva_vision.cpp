// N pictures, P patches (and the class token), D model, A heads, H head size, E patches of an edge, G of the table's.
// Source: timm 1.0 models/eva.py Eva, EvaBlockPostNorm; layers/pos_embed.py resample_abs_pos_embed.
#include "lockstep/model/layers/eva_vision.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
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

Tensor EvaEmbeddings::positions(const Tensor& table_1PD, const Tensor& weights_EG) const {
  const int64_t from = config_.table_edge(), to = config_.edge();
  if (from == to) return table_1PD;
  const Tensor grid = table_1PD.narrow(1, 1, from * from).to(weights_EG.scalar_type()).reshape({from, from, -1});
  const auto resized = [&](const Tensor& lines) {  // along the first dimension
    return weights_EG.matmul(lines.reshape({from, -1})).unflatten(1, {-1, config_.hidden});
  };
  const Tensor whole_EED = resized(resized(grid).transpose(0, 1)).transpose(0, 1);
  return at::cat({table_1PD.narrow(1, 0, 1), whole_EED.reshape({1, to * to, -1}).to(table_1PD.scalar_type())}, 1);
}

Flow EvaEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& w = params["proj.weight"];
  const Tensor pixels = in["pixel_values"].to(w.scalar_type());
  const int64_t size = config_.image_size;
  if (pixels.dim() != 4 || pixels.size(2) != size || pixels.size(3) != size) {
    throw checkpoint_error(fmt::format("{}: expected pictures of {} x {} pixels (config.json image_size), found {}",
                                       name(), size, size, fmt::join(pixels.sizes(), " x ")));
  }
  const Tensor patches_NPD = fn::patch_embed(pixels, w, &params["proj.bias"]);
  const Tensor class_N1D = params["cls_token"].expand({pixels.size(0), 1, config_.hidden});
  Tensor embedded_NPD =
      at::cat({class_N1D, patches_NPD}, 1).add(positions(params["pos_embed"], in["position_weights"]));
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
  const Tensor f_NPF = fn::activation("gelu", fn::linear(h_NPD, params["mlp.fc1.weight"], params["mlp.fc1.bias"]));
  const Tensor grown_NPD = fn::linear(f_NPF, params["mlp.fc2.weight"], params["mlp.fc2.bias"]);
  Tensor out_NPD = h_NPD.add(fn::layer_norm(grown_NPD, params["norm2.weight"], params["norm2.bias"], eps));
  tap(context, name() + ".out", out_NPD);
  return {{"vision", std::move(out_NPD)}};
}

Tensor EvaLayer::attend(const Params& params, const Tensor& x_NPD) const {
  const Tensor& q_bias = params["attn.q_bias"];
  const Tensor bias = at::cat({q_bias, q_bias.new_zeros(q_bias.sizes()), params["attn.v_bias"]});  // keys have none
  const Tensor qkv = fn::linear(x_NPD, params["attn.qkv.weight"], bias);
  const auto parts_NPAH = qkv.unflatten(-1, {3, config_.heads, config_.hidden / config_.heads}).unbind(2);
  const Tensor o_NAPH =
      fn::attention(parts_NPAH[0].transpose(1, 2), parts_NPAH[1].transpose(1, 2), parts_NPAH[2].transpose(1, 2), {});
  return fn::linear(fn::merge_heads(o_NAPH), params["attn.proj.weight"], params["attn.proj.bias"]);
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
