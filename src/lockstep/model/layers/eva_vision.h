// EVA02-CLIP's enormous tower as timm builds it, that of OmniLMM: a class token and learnt positions, then layers whose norms stand
// behind their branches; a norm at the end, and no head.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct EvaVisionConfig {
  int64_t hidden = 1792, mlp = 15360, layers = 64, heads = 16, channels = 3, patch = 14;
  int64_t table_size = 224;  // pixels of an edge that the table of positions is for
  int64_t image_size = 448;  // of the pictures: the table is resized to their grid
  double norm_eps = 1e-6;
  int64_t edge() const { return image_size / patch; }  // patches
  int64_t table_edge() const { return table_size / patch; }
};

/// Places on a square grid, of which a resampler with as many queries as `query_edge` squared makes tokens.
struct EvaLayoutConfig {
  int64_t edge = 0, table_edge = 0;        // patches of a picture's edge, and of the table's
  int64_t query_edge = 0, wave_width = 0;  // queries of an edge; half of the resampler's width
  std::string stored_as = "float32";       // dtype in which the files hold the queries' places
};

/// Reads pixel_values [N,C,h,w]; writes what does not depend on their values: position_weights [edge, table_edge], slice_ends
/// [N], patch_rows and patch_columns [N*P], place_waves [edge, W], query_waves [query_edge, W].
class EvaLayout final : public Block {
 public:
  EvaLayout(std::string name, EvaLayoutConfig config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  EvaLayoutConfig config_;
};

/// Reads pixel_values [N,C,h,w] and position_weights; writes vision [N,1+P,D], the class token first. Taps
/// "vision_embeddings".
class EvaEmbeddings final : public Block {
 public:
  EvaEmbeddings(std::string name, const EvaVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  EvaVisionConfig config_;
};

/// Reads and writes vision [N,1+P,D]. Taps "<name>.out".
class EvaLayer final : public Block {
 public:
  EvaLayer(std::string name, const EvaVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor attend(const Params& params, const Tensor& x_NPD) const;

  EvaVisionConfig config_;
};

/// Reads vision [N,1+P,D]; writes it without class tokens, pictures behind one another [N*P,D]. Taps "vision_features", with
/// them.
class EvaNorm final : public Block {
 public:
  EvaNorm(std::string name, const EvaVisionConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  EvaVisionConfig config_;
};

}  // namespace lockstep
