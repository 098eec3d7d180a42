// Sixteen floats at a time, in the compiler's vector types: the same source for every instruction set.
//
// Included only by the kernels_*.cpp files, behind the float16_*.h that suits them. All names are internal to each of
// them, because each is compiled with other flags.
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/tensor/kernels.h"
#include "lockstep/tensor/kernels_lanes.h"

namespace lockstep::kernels {
namespace {

[[gnu::always_inline]] inline F splat(float value) { return value - F{}; }
[[gnu::always_inline]] inline F select(I mask, F yes, F no) {
  return reinterpret_cast<F>((reinterpret_cast<I>(yes) & mask) | (reinterpret_cast<I>(no) & ~mask));
}
[[gnu::always_inline]] inline F max(F a, F b) { return select(a > b, a, b); }

[[gnu::always_inline]] inline F widen(H bits) { return reinterpret_cast<F>(__builtin_convertvector(bits, U) << 16); }
/// Round to nearest even; NaN stays NaN.
[[gnu::always_inline]] inline H narrow(F value) {
  const U bits = reinterpret_cast<U>(value);
  const U rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const U is_nan = reinterpret_cast<U>(value != value);
  return __builtin_convertvector((rounded & ~is_nan) | (is_nan & 0x7FC0U), H);
}

[[gnu::always_inline]] inline F widened(Bf16 /*which*/, H bits) { return widen(bits); }
[[gnu::always_inline]] inline F widened(F16 /*which*/, H bits) { return widen_half<kLanes>(bits); }
[[gnu::always_inline]] inline H narrowed(Bf16 /*which*/, F value) { return narrow(value); }
[[gnu::always_inline]] inline H narrowed(F16 /*which*/, F value) { return narrow_half(value); }

[[gnu::always_inline]] inline F load(const float* from) {
  F value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
[[gnu::always_inline]] inline F load(const T* from) {
  H bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return widened(T{}, bits);
}
[[gnu::always_inline]] inline void store(float* to, F value) { __builtin_memcpy(to, &value, sizeof value); }
template <typename T>
[[gnu::always_inline]] inline void store(T* to, F value) {
  const H bits = narrowed(T{}, value);
  __builtin_memcpy(to, &bits, sizeof bits);
}

/// The first n < 16 elements; the rest read as zero and are not written.
[[gnu::always_inline]] inline F load_part(const float* from, int64_t n) {
  F value{};
  __builtin_memcpy(&value, from, static_cast<unsigned long>(n) * 4);
  return value;
}
template <typename T>
[[gnu::always_inline]] inline F load_part(const T* from, int64_t n) {
  H bits{};
  __builtin_memcpy(&bits, from, static_cast<unsigned long>(n) * 2);
  return widened(T{}, bits);
}
[[gnu::always_inline]] inline void store_part(float* to, F value, int64_t n) {
  __builtin_memcpy(to, &value, static_cast<unsigned long>(n) * 4);
}
template <typename T>
[[gnu::always_inline]] inline void store_part(T* to, F value, int64_t n) {
  const H bits = narrowed(T{}, value);
  __builtin_memcpy(to, &bits, static_cast<unsigned long>(n) * 2);
}

/// body(load, store, i) for each 16 elements of [0, n), the tail with partial loads and stores.
template <typename Body>
[[gnu::always_inline]] inline void each_vector(int64_t n, Body body) {
  const auto whole_load = [](const auto* from) __attribute__((always_inline)) { return load(from); };
  const auto whole_store = [](auto* to, F value) __attribute__((always_inline)) { store(to, value); };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, whole_load, whole_store);
  if (i == n) return;
  const int64_t rest = n - i;
  body(
      i, [rest](const auto* from) __attribute__((always_inline)) { return load_part(from, rest); },
      [rest](auto* to, F value) __attribute__((always_inline)) { store_part(to, value, rest); });
}

/// Lanes are added in a fixed tree.
[[gnu::always_inline]] inline float sum(F value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}
[[gnu::always_inline]] inline float largest(F value) {
  float lanes[kLanes];
  store(lanes, value);
  float best = lanes[0];
  for (int64_t i = 1; i < kLanes; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}

/// e^x to 1e-7 relative; below -87 it is 1e-38, above 88 it is 1.6e38. Source: Cephes expf (range reduction, degree 6).
[[gnu::always_inline]] inline F exp(F x) {
  x = select(x < -87.0F, splat(-87.0F), x);
  x = select(x > 88.0F, splat(88.0F), x);
  const F shifted = x * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: the integer part stands in the low bits
  const F n = shifted - 12582912.0F;
  const F r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  F p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const I power = __builtin_convertvector(n, I);
  return reinterpret_cast<F>(reinterpret_cast<I>(p) + (power << 23));
}

/// 16 x 16 words, in four rounds of exchanges between rows 8, 4, 2 and 1 apart.
template <int kStep, int... kAt>
[[gnu::always_inline]] inline void exchange(U (&rows)[16], std::integer_sequence<int, kAt...>) {
  for (int i = 0; i < 16; ++i) {
    if ((i & kStep) != 0) continue;
    const U a = rows[i];
    const U b = rows[i + kStep];
    rows[i] = __builtin_shufflevector(a, b, ((kAt & kStep) != 0 ? 16 + kAt - kStep : kAt)...);
    rows[i + kStep] = __builtin_shufflevector(a, b, ((kAt & kStep) != 0 ? 16 + kAt : kAt + kStep)...);
  }
}

[[gnu::always_inline]] inline void transpose(U (&tile)[16]) {
  constexpr std::make_integer_sequence<int, 16> kAll;
  exchange<8>(tile, kAll);
  exchange<4>(tile, kAll);
  exchange<2>(tile, kAll);
  exchange<1>(tile, kAll);
}

}  // namespace
}  // namespace lockstep::kernels
