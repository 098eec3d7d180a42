// N images, P patches (and the class token), D model, A heads, H head size.
// Source: transformers 5.23 models/clip/modeling_clip.py CLIPVisionEmbeddings, CLIPEncoderLayer.
#include "lockstep/model/layers/clip.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

ClipEmbeddings::ClipEmbeddings(const std::string& tower, const ClipConfig& config, std::string also_to)
    : Block(tower + ".embeddings", Component::kVision, kPictures), config_(config), also_to_(std::move(also_to)) {
  param("class_embedding", {config.hidden});
  param("patch_embedding.weight", {config.hidden, config.channels, config.patch, config.patch});
  lookup_table("position_embedding.weight", {config.patches() + 1, config.hidden});
  param_at("pre_layrnorm.weight", tower + ".pre_layrnorm.weight", {config.hidden});
  param_at("pre_layrnorm.bias", tower + ".pre_layrnorm.bias", {config.hidden});
  reads({"pixel_values"});
  std::vector<std::string> slots{"vision"};
  if (!also_to_.empty()) slots.push_back(also_to_);
  writes(std::move(slots));
}

Flow ClipEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor places_P = at::arange(config_.patches() + 1, in["pixel_values"].options().dtype(at::kLong));
  const Tensor positions_PD = params.rows("position_embedding", places_P);
  const Tensor pixels = in["pixel_values"].to(positions_PD.scalar_type());
  const Tensor patches_NPD = params.linear("patch_embedding", fn::patches_of(pixels, config_.patch));
  if (patches_NPD.size(1) != config_.patches()) {
    throw checkpoint_error(
        fmt::format("{}: expected images of {} x {} pixels ({} patches, config.json vision_config.image_size), found "
                    "{} x {} ({} patches)",
                    name(), config_.image_size, config_.image_size, config_.patches(), pixels.size(3), pixels.size(2),
                    patches_NPD.size(1)),
        "crop_size in preprocessor_config.json must equal the tower's image_size");
  }
  const Tensor class_N1D = params["class_embedding"].expand({pixels.size(0), 1, config_.hidden});
  const Tensor embedded_NPD = at::cat({class_N1D, patches_NPD}, 1).add(positions_PD);
  tap(context, "vision_embeddings", embedded_NPD);
  const Tensor out =
      fn::layer_norm(embedded_NPD, params["pre_layrnorm.weight"], params["pre_layrnorm.bias"], config_.norm_eps);
  Flow flow{{"vision", out}};
  if (!also_to_.empty()) flow.set(also_to_, out);
  return flow;
}

ClipLayer::ClipLayer(std::string name, const ClipConfig& config, std::string also_to)
    : Block(std::move(name), Component::kVision, kPictures), config_(config), also_to_(std::move(also_to)) {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden;
  for (const char* norm : {"layer_norm1", "layer_norm2"}) {
    param(std::string(norm) + ".weight", {hidden});
    param(std::string(norm) + ".bias", {hidden});
  }
  fused("self_attn.qkv.weight", {{key("self_attn.q_proj.weight"), {hidden, hidden}},
                                 {key("self_attn.k_proj.weight"), {hidden, hidden}},
                                 {key("self_attn.v_proj.weight"), {hidden, hidden}}});
  fused("self_attn.qkv.bias", {{key("self_attn.q_proj.bias"), {hidden}},
                               {key("self_attn.k_proj.bias"), {hidden}},
                               {key("self_attn.v_proj.bias"), {hidden}}});
  param("self_attn.out_proj.weight", {hidden, hidden});
  param("self_attn.out_proj.bias", {hidden});
  param("mlp.fc1.weight", {config.mlp, hidden});
  param("mlp.fc1.bias", {config.mlp});
  param("mlp.fc2.weight", {hidden, config.mlp});
  param("mlp.fc2.bias", {hidden});
  reads({"vision"});
  std::vector<std::string> slots{"vision"};
  if (!also_to_.empty()) slots.push_back(also_to_);
  writes(std::move(slots));
}

Flow ClipLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_NPD = in["vision"];
  const Tensor a_NPD =
      fn::layer_norm(x_NPD, params["layer_norm1.weight"], params["layer_norm1.bias"], config_.norm_eps);
  const Tensor h_NPD = x_NPD.add(attend(params, a_NPD));
  const Tensor m_NPD =
      fn::layer_norm(h_NPD, params["layer_norm2.weight"], params["layer_norm2.bias"], config_.norm_eps);
  const Tensor f_NPF = fn::activation(config_.activation, params.linear("mlp.fc1", m_NPD));
  const Tensor out = h_NPD.add(params.linear("mlp.fc2", f_NPF, {.summed = true}));
  tap(context, name() + ".out", out);
  Flow flow{{"vision", out}};
  if (!also_to_.empty()) flow.set(also_to_, out);
  return flow;
}

Tensor ClipLayer::attend(const Params& params, const Tensor& x_NPD) const {
  const Tensor bias = fn::constant_key_bias(params["self_attn.qkv.bias"]);
  const Tensor qkv = params.linear("self_attn.qkv", x_NPD, {.bias = &bias});
  const auto parts_NPAH = qkv.unflatten(-1, {3, config_.heads, config_.hidden / config_.heads}).unbind(2);
  const Tensor o_NAPH =
      fn::attention(parts_NPAH[0].transpose(1, 2), parts_NPAH[1].transpose(1, 2), parts_NPAH[2].transpose(1, 2), {});
  return params.linear("self_attn.out_proj", fn::merge_heads(o_NAPH));
}

}  // namespace lockstep
