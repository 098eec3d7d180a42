// N slices, P patches of all of them, D model, A heads, H head size.
// Source: MiniCPM-V 2.6 modeling_navit_siglip.py (transformers 5.23 models/idefics2 has the same tower).
#include "lockstep/model/layers/navit_vision.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

NavitEmbeddings::NavitEmbeddings(std::string name, const NavitVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  param("patch_embedding.weight", {config.hidden, config.channels, config.patch, config.patch});
  param("patch_embedding.bias", {config.hidden});
  lookup_table("position_embedding.weight", {config.side() * config.side(), config.hidden});
  reads({"pixel_values", "patch_places"});
  writes({"vision"});
}

Flow NavitEmbeddings::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor &w = params["patch_embedding.weight"], &pixels = in["pixel_values"], &places_P = in["patch_places"];
  if (pixels.dim() != 2 || pixels.size(1) != config_.patch_values() || pixels.size(0) != places_P.size(0)) {
    throw checkpoint_error(
        fmt::format(
            "{}: expected {} patches of {} values (config.json vision_config.patch_size {}), found {} values in "
            "{} patches",
            name(), places_P.size(0), config_.patch_values(), config_.patch, pixels.numel(), pixels.size(0)),
        "patch_size of preprocessor_config.json must be that of the tower");
  }
  const Tensor patches_PD = params.linear("patch_embedding", pixels.to(w.scalar_type()));
  Tensor embedded_PD = patches_PD.add(params.rows("position_embedding", places_P));
  tap(context, "vision_embeddings", embedded_PD);
  return {{"vision", std::move(embedded_PD)}};
}

NavitLayer::NavitLayer(std::string name, const NavitVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden;
  for (const char* norm : {"layer_norm1", "layer_norm2"}) {
    param(std::string(norm) + ".weight", {hidden});
    param(std::string(norm) + ".bias", {hidden});
  }
  const auto qkv = [&](const std::string& leaf, const Shape& shape) {
    fused("self_attn.qkv." + leaf, {{key("self_attn.q_proj." + leaf), shape},
                                    {key("self_attn.k_proj." + leaf), shape},
                                    {key("self_attn.v_proj." + leaf), shape}});
  };
  qkv("weight", {hidden, hidden});
  qkv("bias", {hidden});
  param("self_attn.out_proj.weight", {hidden, hidden});
  param("self_attn.out_proj.bias", {hidden});
  param("mlp.fc1.weight", {config.mlp, hidden});
  param("mlp.fc1.bias", {config.mlp});
  param("mlp.fc2.weight", {hidden, config.mlp});
  param("mlp.fc2.bias", {hidden});
  reads({"vision", "slice_ends"});
  writes({"vision"});
}

Flow NavitLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_PD = in["vision"];
  const Tensor a_PD = fn::layer_norm(x_PD, params["layer_norm1.weight"], params["layer_norm1.bias"], config_.norm_eps);
  const Tensor h_PD = x_PD.add(attend(params, a_PD, in["slice_ends"]));
  const Tensor m_PD = fn::layer_norm(h_PD, params["layer_norm2.weight"], params["layer_norm2.bias"], config_.norm_eps);
  const Tensor f_PF = fn::activation(config_.activation, params.linear("mlp.fc1", m_PD));
  Tensor out_PD = h_PD.add(params.linear("mlp.fc2", f_PF, {.summed = true}));
  tap(context, name() + ".out", out_PD);
  return {{"vision", std::move(out_PD)}};
}

Tensor NavitLayer::attend(const Params& params, const Tensor& x_PD, const Tensor& ends_N) const {
  const Tensor bias = fn::constant_key_bias(params["self_attn.qkv.bias"]);
  const Tensor qkv = params.linear("self_attn.qkv", x_PD, {.bias = &bias});
  const auto parts_1PAH = qkv.unsqueeze(0).unflatten(-1, {3, config_.heads, config_.hidden / config_.heads}).unbind(2);
  const Tensor o_1APH = fn::attention(parts_1PAH[0].transpose(1, 2), parts_1PAH[1].transpose(1, 2),
                                      parts_1PAH[2].transpose(1, 2), {.row_ends = &ends_N});
  return params.linear("self_attn.out_proj", fn::merge_heads(o_1APH).select(0, 0));
}

NavitNorm::NavitNorm(std::string name, const NavitVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  param("weight", {config.hidden});
  param("bias", {config.hidden});
  reads({"vision"});
  writes({"vision"});
}

Flow NavitNorm::forward(const Params& params, const Flow& in, const Context& context) const {
  Tensor out_PD = fn::layer_norm(in["vision"], params["weight"], params["bias"], config_.norm_eps);
  tap(context, "vision_features", out_PD);
  return {{"vision", std::move(out_PD)}};
}

}  // namespace lockstep
