// 16-bit numbers to float32, and float16 back, in integer arithmetic, for processors without instructions for it. Included only by
// kernels_v2.cpp.
#pragma once

#include "lockstep/tensor/kernels_lanes.h"

namespace lockstep::kernels {
namespace {

/// Bits above sixteen zeros: bfloat16 as float32.
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F above_zeros(typename Lanes<kWidth>::H bits) {
  static_assert(kWidth == 4);
  const typename Lanes<kWidth>::H zeros{};
  return reinterpret_cast<typename Lanes<kWidth>::F>(__builtin_shufflevector(zeros, bits, 0, 4, 1, 5, 2, 6, 3, 7));
}

/// Exact, also for subnormal numbers, infinities and NaN.
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F widen_half(typename Lanes<kWidth>::H bits) {
  using Wide = typename Lanes<kWidth>::F;
  using Bits = typename Lanes<kWidth>::U;
  const Bits half = reinterpret_cast<Bits>(above_zeros<kWidth>(bits)) >> 16;
  const Bits body = (half & 0x7FFFU) << 13;
  const Bits finite = reinterpret_cast<Bits>(reinterpret_cast<Wide>(body) * 0x1p112F);  // the biases differ by 112
  const Bits wild = reinterpret_cast<Bits>((half & 0x7C00U) == 0x7C00U);
  return reinterpret_cast<Wide>((finite & ~wild) | ((body | 0x7F800000U) & wild) | ((half & 0x8000U) << 16));
}

/// Round to nearest even; too large becomes infinite, NaN stays NaN.
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::H narrow_half(typename Lanes<kWidth>::F value) {
  using Wide = typename Lanes<kWidth>::F;
  using Bits = typename Lanes<kWidth>::U;
  const Bits bits = reinterpret_cast<Bits>(value);
  const Bits body = bits & 0x7FFFFFFFU;
  const Bits normal = (body - (112U << 23) + 0xFFFU + ((body >> 13) & 1U)) >> 13;
  const Wide shifted = reinterpret_cast<Wide>(body) + 0.5F;  // whose last bit is that of a subnormal float16
  const Bits subnormal = reinterpret_cast<Bits>(shifted) - 0x3F000000U;
  const Bits small = reinterpret_cast<Bits>(body < 0x38800000U), large = reinterpret_cast<Bits>(body >= 0x47800000U);
  const Bits is_nan = reinterpret_cast<Bits>(value != value);
  Bits half = (subnormal & small) | (normal & ~small);
  half = (half & ~large) | (0x7C00U & large);
  half = (half & ~is_nan) | (0x7E00U & is_nan);
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000U), typename Lanes<kWidth>::H);
}

}  // namespace
}  // namespace lockstep::kernels
