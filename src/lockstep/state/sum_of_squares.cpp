#include "lockstep/state/sum_of_squares.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = int64_t{1} << 18;  // of which threads take whole ones

/// Compiled with -O3, whose vectors have a sum each.
double squares_of(const float* x, int64_t count) {
  constexpr int64_t kSums = 8;
  std::array<double, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int64_t s = 0; s < kSums; ++s) {
      const auto one = static_cast<double>(x[i + s]);
      sums[static_cast<size_t>(s)] += one * one;
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

Tensor summed_by_libtorch(const Tensor& x) {
  constexpr int64_t kMost = int64_t{1} << 30;  // BLAS counts in 32 bits
  Tensor sum;
  for (int64_t begin = 0; begin < x.numel(); begin += kMost) {
    const Tensor part = x.narrow(0, begin, std::min(kMost, x.numel() - begin));
    const Tensor squares = part.dot(part).to(at::kDouble);
    sum.defined() ? void(sum.add_(squares)) : void(sum = squares);
  }
  return sum.defined() ? sum : zeros({}, Dtype::kF64);
}

}  // namespace

Tensor sum_of_squares(const Tensor& x) {
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) return summed_by_libtorch(x);
  const int64_t count = x.numel(), pieces = (count + kPiece - 1) / kPiece;
  std::vector<double> sums(static_cast<size_t>(pieces));
  const auto* numbers = fn::read_of<float>(x);
  kernels::parallel_rows(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      sums[static_cast<size_t>(p)] = squares_of(numbers + p * kPiece, std::min(kPiece, count - p * kPiece));
    }
  });
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  const Tensor out = zeros({}, Dtype::kF64);
  *fn::write_of<double>(out) = sum > std::numeric_limits<float>::max() ? std::numeric_limits<double>::infinity() : sum;
  return out;
}

}  // namespace lockstep
