// float16 to float32 and back by the processor's own instructions (F16C, which all with AVX2 have). Included only by
// kernels_v3.cpp and kernels_v4.cpp.
#pragma once

#include <immintrin.h>

#include "lockstep/tensor/kernels_lanes.h"

namespace lockstep::kernels {
namespace {

template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F widen_half(typename Lanes<kWidth>::H bits) {
  constexpr int kParts = kWidth / 8;
  __m128i halves[kParts];
  __builtin_memcpy(halves, &bits, sizeof bits);
  __m256 parts[kParts];
  for (int i = 0; i < kParts; ++i) parts[i] = _mm256_cvtph_ps(halves[i]);
  typename Lanes<kWidth>::F value;
  __builtin_memcpy(&value, parts, sizeof value);
  return value;
}

/// Round to nearest even; too large becomes infinite, NaN stays NaN.
[[gnu::always_inline]] inline H narrow_half(F value) {
  __m256 parts[2];
  __builtin_memcpy(parts, &value, sizeof value);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m128i halves[2] = {_mm256_cvtps_ph(parts[0], kNearest), _mm256_cvtps_ph(parts[1], kNearest)};
  H bits;
  __builtin_memcpy(&bits, halves, sizeof bits);
  return bits;
}

}  // namespace
}  // namespace lockstep::kernels
