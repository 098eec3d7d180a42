// How a low-rank adapter changes what a block's matrices and tables give. The one place that computes it.
//
// Of a matrix W [out, in] with parts of rank r_i over its rows (one released module each; q, k and v of a fused one):
//   y = x W^T + b + scale_i * drop(x) A_i^T B_i^T                                LoRA
//   y = x W^T + b + (g - 1) drop(x) W^T + g * scale_i * drop(x) A_i^T B_i^T      DoRA, g = m / |rows of W + scale B A|,
// where the norms pass no gradient. Sources: Hu et al. 2021 (LoRA); Liu et al. 2024 (DoRA), as peft 0.21 computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/tensor/fn.h"

namespace lockstep {

/// Tensors are named by their place among those that a step is given, the block's own in front.
struct AdaptedParam {
  size_t param = 0;                    // of the block: a matrix or a table
  size_t adapter = 0;                  // whose, where rows choose among several
  std::vector<fn::LowRankPart> parts;  // in rising rows; of a table: one over all columns
  size_t a = 0, b = 0;                 // A of all parts behind one another [R, in]; B of all, flat
  std::optional<size_t> magnitude;     // DoRA: m of all parts, flat
  std::optional<size_t> bias;          // of B: of all parts, flat
  double dropout = 0;
  uint64_t key = 0;  // of its own, for what is dropped
};

struct AdaptedBlock {
  std::vector<AdaptedParam> params;
};

}  // namespace lockstep
