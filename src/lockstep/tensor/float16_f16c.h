// 16-bit numbers to float32, and float16 back, by the processor's own instructions (F16C, which all with AVX2 have). Included only
// by kernels_v3.cpp and kernels_v4.cpp.
#pragma once

#include <immintrin.h>

#include "lockstep/tensor/kernels_lanes.h"

namespace lockstep::kernels {
namespace {

/// Bits above sixteen zeros: bfloat16 as float32. g++ 12 makes five instructions of what the vector types say.
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F above_zeros(typename Lanes<kWidth>::H bits) {
#if defined(__AVX512F__)
  const __m512i words = _mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(bits));
#else
  const __m256i words = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(bits));
#endif
  return reinterpret_cast<typename Lanes<kWidth>::F>(reinterpret_cast<typename Lanes<kWidth>::U>(words) << 16);
}

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
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::H narrow_half(typename Lanes<kWidth>::F value) {
  constexpr int kParts = kWidth / 8;
  __m256 parts[kParts];
  __builtin_memcpy(parts, &value, sizeof value);
  __m128i halves[kParts];
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  for (int i = 0; i < kParts; ++i) halves[i] = _mm256_cvtps_ph(parts[i], kNearest);
  typename Lanes<kWidth>::H bits;
  __builtin_memcpy(&bits, halves, sizeof bits);
  return bits;
}

}  // namespace
}  // namespace lockstep::kernels
