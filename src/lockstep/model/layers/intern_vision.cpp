// N pictures (tiles), P patches (and the class token), D model, A heads, H head size, M patches of a token's edge.
// Source: transformers 5.23 models/internvl/modeling_internvl.py.
#include "lockstep/model/layers/intern_vision.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/place_table.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr double kProjectorEps = 1e-5;  // torch's default, whatever the tower's is

}  // namespace

InternVisionEmbeddings::InternVisionEmbeddings(std::string name, const InternVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  param("cls_token", {1, 1, config.hidden});
  param("position_embeddings", {1, config.edge() * config.edge() + 1, config.hidden});
  param("patch_embeddings.projection.weight", {config.hidden, config.channels, config.patch, config.patch});
  param("patch_embeddings.projection.bias", {config.hidden});
  reads({"pixel_values"});
  writes({"vision"});
}

/// For tiles of `edge` patches, as the authors' tower interpolates them.
Tensor InternVisionEmbeddings::positions_for(const Tensor& table_1PD, int64_t edge) const {
  const int64_t from = config_.edge();
  if (edge == from) return table_1PD;
  const std::vector<float> weights = bicubic_weights(from, edge, /*smooth=*/false);
  const Tensor weights_EG = from_values(std::span<const float>(weights), {edge, from});
  return resized_table(table_1PD, sent_to(weights_EG, table_1PD.device()));
}

Flow InternVisionEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& positions_1PD = params["position_embeddings"];
  const Tensor pixels = in["pixel_values"].to(positions_1PD.scalar_type());
  if (pixels.size(2) != pixels.size(3) || pixels.size(2) < config_.patch) {
    throw checkpoint_error(fmt::format("{}: expected tiles that are square, of {} pixels at least, found {} x {}",
                                       name(), config_.patch, pixels.size(3), pixels.size(2)));
  }
  const Tensor patches_NPD = params.linear("patch_embeddings.projection", fn::patches_of(pixels, config_.patch));
  const Tensor class_N1D = params["cls_token"].expand({pixels.size(0), 1, config_.hidden});
  Tensor embedded_NPD =
      at::cat({class_N1D, patches_NPD}, 1).add(positions_for(positions_1PD, pixels.size(2) / config_.patch));
  tap(context, "vision_embeddings", embedded_NPD);
  return {{"vision", std::move(embedded_NPD)}};
}

InternVisionLayer::InternVisionLayer(std::string name, const InternVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden;
  for (const char* norm : {"layernorm_before", "layernorm_after"}) {
    param(std::string(norm) + ".weight", {hidden});
    if (!config.rms_norm) param(std::string(norm) + ".bias", {hidden});
  }
  const auto qkv = [&](const char* leaf, const Shape& shape) {
    fused(std::string("attention.qkv.") + leaf, {{key(std::string("attention.q_proj.") + leaf), shape},
                                                 {key(std::string("attention.k_proj.") + leaf), shape},
                                                 {key(std::string("attention.v_proj.") + leaf), shape}});
  };
  qkv("weight", {hidden, hidden});
  if (config.qkv_bias) qkv("bias", {hidden});
  if (config.qk_norm) {
    param("attention.q_norm.weight", {hidden});
    param("attention.k_norm.weight", {hidden});
  }
  param("attention.projection_layer.weight", {hidden, hidden});
  param("attention.projection_layer.bias", {hidden});
  param("mlp.fc1.weight", {config.mlp, hidden});
  param("mlp.fc1.bias", {config.mlp});
  param("mlp.fc2.weight", {hidden, config.mlp});
  param("mlp.fc2.bias", {hidden});
  param("lambda_1", {hidden});
  param("lambda_2", {hidden});
  reads({"vision"});
  writes({"vision"});
}

Tensor InternVisionLayer::norm(const Params& params, const std::string& local, const Tensor& x) const {
  const Tensor& weight = params[local + ".weight"];
  return config_.rms_norm ? fn::rms_norm(x, weight, config_.norm_eps)
                          : fn::layer_norm(x, weight, params[local + ".bias"], config_.norm_eps);
}

Flow InternVisionLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_NPD = in["vision"];
  const Tensor h_NPD = x_NPD.add(attend(params, norm(params, "layernorm_before", x_NPD)).mul(params["lambda_1"]));
  const Tensor m_NPD = norm(params, "layernorm_after", h_NPD);
  const Tensor f_NPF = fn::activation(config_.activation, params.linear("mlp.fc1", m_NPD));
  const Tensor grown_NPD = params.linear("mlp.fc2", f_NPF);
  Tensor out = h_NPD.add(grown_NPD.mul(params["lambda_2"]));
  tap(context, name() + ".out", out);
  return {{"vision", std::move(out)}};
}

Tensor InternVisionLayer::attend(const Params& params, const Tensor& x_NPD) const {
  const Tensor* own = params.find("attention.qkv.bias");
  const Tensor bias = own == nullptr || config_.qk_norm ? Tensor() : fn::constant_key_bias(*own);
  const Tensor qkv = params.linear("attention.qkv", x_NPD, {.bias = bias.defined() ? &bias : nullptr});
  auto parts_NPD = qkv.chunk(3, -1);
  if (config_.qk_norm) {
    parts_NPD[0] = fn::rms_norm(parts_NPD[0], params["attention.q_norm.weight"], config_.norm_eps);
    parts_NPD[1] = fn::rms_norm(parts_NPD[1], params["attention.k_norm.weight"], config_.norm_eps);
  }
  const auto heads_NAPH = [&](const Tensor& x) { return x.unflatten(-1, {config_.heads, -1}).transpose(1, 2); };
  const Tensor o_NAPH = fn::attention(heads_NAPH(parts_NPD[0]), heads_NAPH(parts_NPD[1]), heads_NAPH(parts_NPD[2]), {});
  return params.linear("attention.projection_layer", fn::merge_heads(o_NAPH));
}

ShuffleProjector::ShuffleProjector(std::string name, ShuffleProjectorConfig config)
    : Block(std::move(name), Component::kProjector, kPictures), config_(std::move(config)) {
  const int64_t wide = config_.vision_hidden * config_.merge * config_.merge;
  param("layer_norm.weight", {wide});
  param("layer_norm.bias", {wide});
  param("linear_1.weight", {config_.text_hidden, wide});
  param("linear_1.bias", {config_.text_hidden});
  param("linear_2.weight", {config_.text_hidden, config_.text_hidden});
  param("linear_2.bias", {config_.text_hidden});
  reads({"vision"});
  writes({"media"});
}

Flow ShuffleProjector::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& whole = in["vision"];
  const Tensor x_NPD = config_.drop_class_token ? whole.narrow(1, 1, whole.size(1) - 1) : whole;
  const int64_t merge = config_.merge;
  const auto edge = static_cast<int64_t>(std::sqrt(static_cast<double>(x_NPD.size(1))));
  check(edge * edge == x_NPD.size(1) && edge % merge == 0, "patches that make whole tokens");
  // Patches of a token stand row by row, each with all its channels.
  const Tensor blocks = x_NPD.unflatten(1, {edge / merge, merge, edge / merge, merge})
                            .permute({0, 1, 3, 2, 4, 5})
                            .flatten(3)
                            .flatten(1, 2);
  const Tensor normed = fn::layer_norm(blocks, params["layer_norm.weight"], params["layer_norm.bias"], kProjectorEps);
  const Tensor inner = fn::activation(config_.activation, params.linear("linear_1", normed));
  Tensor media = params.linear("linear_2", inner);
  tap(context, "projector", media);
  return {{"media", std::move(media)}};
}

}  // namespace lockstep
