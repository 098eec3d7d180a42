// A tower's table of learnt positions, resized to another grid of patches.
//
// Example:
//   const auto weights = bicubic_weights(32, 24, false);   // of a tower for 32 x 32 patches, of pictures with 24 x 24
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// Rows of weights [to, from]: bicubic interpolation of `from` values that stand side by side. Smooth: PyTorch's `antialias`,
/// whose curve is another one (a = -0.5; without it -0.75). Source: PyTorch UpSample.h, UpSampleKernel.cpp.
std::vector<float> bicubic_weights(int64_t from, int64_t to, bool smooth);

/// `table` [1,1+G*G,D], the class token's place first, for a grid of E x E: `weights` [E,G], in whose dtype it is summed.
Tensor resized_table(const Tensor& table_1PD, const Tensor& weights_EG);

}  // namespace lockstep
