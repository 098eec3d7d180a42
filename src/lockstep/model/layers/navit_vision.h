// SigLIP as NaViT takes it: slices of any proportions as patches behind one another, each slice attending to itself alone, on
// learnt positions that are spread over a table. The tower of MiniCPM-V.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct NavitVisionConfig {
  int64_t hidden = 0, mlp = 0, layers = 0, heads = 0, channels = 3, image_size = 0, patch = 0;
  double norm_eps = 1e-6;
  std::string activation = "gelu_pytorch_tanh";
  int64_t side() const { return image_size / patch; }  // places of the table's edge
  int64_t patch_values() const { return channels * patch * patch; }
};

/// Reads pixel_values [P, values of a patch] and patch_places [P]; writes vision [P,D]. Taps "vision_embeddings".
class NavitEmbeddings final : public Block {
 public:
  NavitEmbeddings(std::string name, const NavitVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  NavitVisionConfig config_;
};

/// Reads vision [P,D] and slice_ends; writes vision. Taps "<name>.out".
class NavitLayer final : public Block {
 public:
  NavitLayer(std::string name, const NavitVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor attend(const Params& params, const Tensor& x_PD, const Tensor& ends_N) const;

  NavitVisionConfig config_;
};

/// The norm behind the last layer. Reads and writes vision [P,D]. Taps "vision_features".
class NavitNorm final : public Block {
 public:
  NavitNorm(std::string name, const NavitVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  NavitVisionConfig config_;
};

}  // namespace lockstep
