// The CLIP vision tower: patches with a class token and learnt positions, then pre-norm layers.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct ClipConfig {
  int64_t hidden = 0, mlp = 0, layers = 0, heads = 0, channels = 3, image_size = 0, patch = 0;
  double norm_eps = 1e-5;
  std::string activation = "quick_gelu";
  int64_t patches() const { return (image_size / patch) * (image_size / patch); }
};

/// Reads pixel_values [N,C,h,w]; writes vision [N,1+P,D], the class token first, after the tower's first norm.
/// Taps "vision_embeddings" before that norm.
class ClipEmbeddings final : public Block {
 public:
  /// `tower`: the prefix under which embeddings and pre_layrnorm stand. `also_to`: a second slot for the result, or "".
  ClipEmbeddings(const std::string& tower, const ClipConfig& config, std::string also_to);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  ClipConfig config_;
  std::string also_to_;
};

/// Reads and writes vision [N,P,D]. Taps "<name>.out".
class ClipLayer final : public Block {
 public:
  ClipLayer(std::string name, const ClipConfig& config, std::string also_to);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor attend(const Params& params, const Tensor& x_NPD) const;

  ClipConfig config_;
  std::string also_to_;
};

}  // namespace lockstep
