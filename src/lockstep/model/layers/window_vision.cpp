// P patches, M tokens (merged patches), D model, N heads, H head size, W stretches of L patches each.
// Source: transformers 5.23 models/qwen2_5_vl/modeling_qwen2_5_vl.py Qwen2_5_VisionTransformerPretrainedModel.
#include "lockstep/model/layers/window_vision.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/gated_mlp.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

PatchRows::PatchRows(std::string name, const WindowVisionConfig& config)
    : Block(std::move(name), Component::kVision, kPictures), config_(config) {
  param("proj.weight", {config.hidden, config.channels, config.temporal_patch, config.patch, config.patch});
  reads({"pixel_values", "patch_order"});
  writes({"vision"});
}

Flow PatchRows::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor &w = params["proj.weight"], &pixels = in["pixel_values"], &order_P = in["patch_order"];
  if (pixels.dim() != 2 || pixels.size(1) != config_.patch_values() || pixels.size(0) != order_P.size(0)) {
    throw checkpoint_error(
        fmt::format(
            "{}: expected {} patches of {} values (config.json vision_config: {} channels, {} frames, patch_size "
            "{}), found {} values in {} patches",
            name(), order_P.size(0), config_.patch_values(), config_.channels, config_.temporal_patch, config_.patch,
            pixels.numel(), pixels.size(0)),
        "patch_size and temporal_patch_size of preprocessor_config.json must be those of the tower");
  }
  // Rows of pixels need no gradient, so that they are what is moved.
  const Tensor rows = pixels.index_select(0, order_P).to(w.scalar_type());
  Tensor embedded_PD = params.linear("proj", rows);
  if (context.tap) tap(context, "patch_embed", embedded_PD.index_select(0, order_P.argsort()));
  return {{"vision", std::move(embedded_PD)}};
}

WindowVisionLayer::WindowVisionLayer(std::string name, const WindowVisionConfig& config, bool whole_frames)
    : Block(std::move(name), Component::kVision, kPictures),
      config_(config),
      ends_(whole_frames ? "frame_ends" : "window_ends") {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden, mlp = config.mlp;
  param("norm1.weight", {hidden});
  if (config.qkv_apart) {
    const auto parts = [&](const std::string& of, const Shape& shape) {
      return std::vector<ParamSource>{
          {key("attn.q." + of), shape}, {key("attn.k." + of), shape}, {key("attn.v." + of), shape}};
    };
    fused("attn.qkv.weight", parts("weight", {hidden, hidden}));
    fused("attn.qkv.bias", parts("bias", {hidden}));
  } else {
    param("attn.qkv.weight", {3 * hidden, hidden});
    param("attn.qkv.bias", {3 * hidden});
  }
  param("attn.proj.weight", {hidden, hidden});
  param("attn.proj.bias", {hidden});
  param("norm2.weight", {hidden});
  fused("mlp.gate_up.weight",
        {{key("mlp.gate_proj.weight"), {mlp, hidden}}, {key("mlp.up_proj.weight"), {mlp, hidden}}});
  fused("mlp.gate_up.bias", {{key("mlp.gate_proj.bias"), {mlp}}, {key("mlp.up_proj.bias"), {mlp}}});
  param("mlp.down_proj.weight", {hidden, mlp});
  param("mlp.down_proj.bias", {hidden});
  reads({"vision", "vision_cos", "vision_sin", ends_});
  writes({"vision"});
}

Flow WindowVisionLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_PD = in["vision"];
  const Tensor h_PD = x_PD.add(attend(params, fn::rms_norm(x_PD, params["norm1.weight"], config_.norm_eps), in));
  const Tensor normed_PD = fn::rms_norm(h_PD, params["norm2.weight"], config_.norm_eps);
  Tensor out_PD = h_PD.add(gated_mlp(params, normed_PD, config_.activation));
  tap(context, name() + ".out", out_PD);
  return {{"vision", std::move(out_PD)}};
}

Tensor WindowVisionLayer::attend(const Params& params, const Tensor& x_PD, const Flow& in) const {
  const Tensor qkv = params.linear("attn.qkv", x_PD);
  const auto [q_1NPH, k_1NPH, v_1NPH] =
      fn::split_heads(qkv.unsqueeze(0), in["vision_cos"], in["vision_sin"],
                      {config_.heads, config_.heads, config_.hidden / config_.heads}, /*repeat_kv=*/false);
  const Tensor o_1NPH = fn::attention(q_1NPH, k_1NPH, v_1NPH, {.row_ends = &in[ends_]});
  return params.linear("attn.proj", fn::merge_heads(o_1NPH).select(0, 0));
}

PatchMerger::PatchMerger(std::string name, const WindowVisionConfig& config)
    : Block(std::move(name), Component::kProjector, kPictures), config_(config) {
  const int64_t wide = config.hidden * config.merge * config.merge;
  param("ln_q.weight", {config.hidden});
  param("mlp.0.weight", {wide, wide});
  param("mlp.0.bias", {wide});
  param("mlp.2.weight", {config.text_hidden, wide});
  param("mlp.2.bias", {config.text_hidden});
  reads({"vision", "token_order"});
  writes({"media"});
}

Flow PatchMerger::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor normed_PD = fn::rms_norm(in["vision"], params["ln_q.weight"], config_.norm_eps);
  const Tensor blocks = normed_PD.reshape({-1, config_.hidden * config_.merge * config_.merge});
  const Tensor inner = fn::activation("gelu", params.linear("mlp.0", blocks));
  const Tensor merged = params.linear("mlp.2", inner);
  tap(context, "merger", merged);
  Tensor media = merged.index_select(0, in["token_order"]);
  tap(context, "image_features", media);
  return {{"media", std::move(media)}};
}

}  // namespace lockstep
