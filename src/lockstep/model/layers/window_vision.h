// A vision tower for pictures of any size: rows of patches, attention inside windows and in some layers over whole
// frames, and a merger that makes one token of each block of patches. Qwen2.5-VL's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

struct WindowVisionConfig {
  int64_t hidden = 0, mlp = 0, layers = 0, heads = 0, text_hidden = 0, channels = 3;
  int64_t patch = 0, temporal_patch = 2, merge = 2;  // pixels of a patch, frames of a patch, patches of a token's edge
  int64_t window = 0;                                // tokens of a window's edge
  std::vector<int64_t> whole_frame_layers;
  double norm_eps = 1e-6;
  std::string activation = "silu";
  RopeConfig rope;         // of a patch's row and column
  bool qkv_apart = false;  // the files hold attn.q, attn.k and attn.v in place of attn.qkv
  int64_t patch_values() const { return channels * temporal_patch * patch * patch; }
};

/// Reads pixel_values [P, values of a patch] and patch_order [P]; writes vision [P,D] in the order of the windows. Taps
/// "patch_embed" in the given order.
class PatchRows final : public Block {
 public:
  PatchRows(std::string name, const WindowVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WindowVisionConfig config_;
};

/// Reads vision [P,D], vision_cos, vision_sin [1,P,H] and window_ends or frame_ends; writes vision. Taps "<name>.out".
class WindowVisionLayer final : public Block {
 public:
  WindowVisionLayer(std::string name, const WindowVisionConfig& config, bool whole_frames);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor attend(const Params& params, const Tensor& x_PD, const Flow& in) const;
  WindowVisionConfig config_;
  const char* ends_;
};

/// Reads vision [P,D], token_order [M]; writes media [M, text hidden] in the order of the placeholders. Taps "merger"
/// (in the order of the windows) and "image_features".
class PatchMerger final : public Block {
 public:
  PatchMerger(std::string name, const WindowVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WindowVisionConfig config_;
};

}  // namespace lockstep
