// InternViT, the tower of InternVL: patches with a class token and learnt positions, then pre-norm layers whose branches are
// scaled channel by channel; and the way from its patches to tokens.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct InternVisionConfig {
  int64_t hidden = 0, mlp = 0, layers = 0, heads = 0, channels = 3, image_size = 0, patch = 0;
  double norm_eps = 1e-6;
  bool rms_norm = false;  // the 6B's norms
  bool qk_norm = false;   // queries and keys normalised over all heads at once
  bool qkv_bias = true;
  std::string activation = "gelu";
  int64_t edge() const { return image_size / patch; }  // patches
};

/// Reads pixel_values [N,C,h,h]; writes vision [N,1+P,D], the class token first. Taps "vision_embeddings".
class InternVisionEmbeddings final : public Block {
 public:
  InternVisionEmbeddings(std::string name, const InternVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor positions_for(const Tensor& table_1PD, int64_t edge) const;

  InternVisionConfig config_;
};

/// Reads and writes vision [N,1+P,D]. Taps "<name>.out".
class InternVisionLayer final : public Block {
 public:
  InternVisionLayer(std::string name, const InternVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor norm(const Params& params, const std::string& local, const Tensor& x) const;
  Tensor attend(const Params& params, const Tensor& x_NPD) const;

  InternVisionConfig config_;
};

struct ShuffleProjectorConfig {
  int64_t vision_hidden = 0, text_hidden = 0;
  int64_t merge = 2;  // patches of a token's edge
  std::string activation = "gelu";
  bool drop_class_token = true;
};

/// Blocks of merge x merge patches become one token each, row by row; a norm and two linear layers follow. Reads vision
/// [N,1+P,D], a square of patches; writes media [N,P/merge^2,D']. Taps "projector".
class ShuffleProjector final : public Block {
 public:
  ShuffleProjector(std::string name, ShuffleProjectorConfig config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  ShuffleProjectorConfig config_;
};

}  // namespace lockstep
