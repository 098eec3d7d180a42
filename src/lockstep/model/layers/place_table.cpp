// P places (the class token's first), D model, G of the table's edge, E of the edge that is wanted.
#include "lockstep/model/layers/place_table.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

namespace lockstep {
namespace {

/// Keys' convolution, which is 1 at 0 and 0 at the other whole numbers.
double curve(double distance, double a) {
  const double x = std::abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

}  // namespace

std::vector<float> bicubic_weights(int64_t from, int64_t to, bool smooth) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wide = smooth ? std::max(scale, 1.0) : 1.0, a = smooth ? -0.5 : -0.75;
  std::vector<float> weights(static_cast<size_t>(from * to), 0.0F);
  for (int64_t row = 0; row < to; ++row) {
    const double center = scale * (static_cast<double>(row) + 0.5) - 0.5;
    const auto first = static_cast<int64_t>(std::floor(center - 2 * wide)),
               last = first + 2 + static_cast<int64_t>(std::ceil(4 * wide));
    double sum = 0;
    for (int64_t at = first; at <= last; ++at)
      sum += !smooth || (at >= 0 && at < from) ? curve((static_cast<double>(at) - center) / wide, a) : 0.0;
    for (int64_t at = first; at <= last; ++at) {
      if (smooth && (at < 0 || at >= from))
        continue;  // what stands outside has no say; otherwise the last value goes on
      const int64_t place = std::clamp<int64_t>(at, 0, from - 1);
      weights[static_cast<size_t>(row * from + place)] +=
          static_cast<float>(curve((static_cast<double>(at) - center) / wide, a) / sum);
    }
  }
  return weights;
}

Tensor resized_table(const Tensor& table_1PD, const Tensor& weights_EG) {
  const int64_t to = weights_EG.size(0), from = weights_EG.size(1), width = table_1PD.size(2);
  const Tensor grid = table_1PD.narrow(1, 1, from * from).to(weights_EG.scalar_type()).reshape({from, from, -1});
  const auto resized = [&](const Tensor& lines) {  // along the first dimension
    return weights_EG.matmul(lines.reshape({from, -1})).unflatten(1, {-1, width});
  };
  const Tensor whole_EED = resized(resized(grid).transpose(0, 1)).transpose(0, 1);
  return at::cat({table_1PD.narrow(1, 0, 1), whole_EED.reshape({1, to * to, -1}).to(table_1PD.scalar_type())}, 1);
}

}  // namespace lockstep
