// Sixteen floats at a time: the same source for every instruction set.
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

[[gnu::always_inline]] inline F select(I mask, F yes, F no) {
  return bits_as<F>((bits_as<I>(yes) & mask) | (bits_as<I>(no) & ~mask));
}
[[gnu::always_inline]] inline F max(F a, F b) { return select(a > b, a, b); }

/// 0, 1, … 15.
[[gnu::always_inline]] inline I lane_numbers() {
  I numbers;
  for (int i = 0; i < kLanes; ++i) numbers.part[i / kInRegister][i % kInRegister] = i;
  return numbers;
}

// Of a register, or of as many numbers as one has.
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F widened(Bf16 /*which*/, typename Lanes<kWidth>::H bits) {
  return above_zeros<kWidth>(bits);
}
template <int kWidth>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F widened(F16 /*which*/, typename Lanes<kWidth>::H bits) {
  return widen_half<kWidth>(bits);
}
template <typename T>
[[gnu::always_inline]] inline F widened(T which, const H& bits) {
  return F([&](int i) { return widened<kInRegister>(which, bits.part[i]); });
}
/// Round to nearest even; NaN stays NaN.
[[gnu::always_inline]] inline H narrowed(Bf16 /*which*/, const F& value) {
  const U bits = bits_as<U>(value);
  const U rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const U is_nan = bits_as<U>(value != value);
  return numbers_as<H>((rounded & ~is_nan) | (is_nan & 0x7FC0U));
}
[[gnu::always_inline]] inline H narrowed(F16 /*which*/, const F& value) {
  return H([&](int i) { return narrow_half<kInRegister>(value.part[i]); });
}

[[gnu::always_inline]] inline F load(const float* from) { return read<F>(from); }
template <typename T>
[[gnu::always_inline]] inline F load(const T* from) {
  return widened(T{}, read<H>(from));
}
[[gnu::always_inline]] inline void store(float* to, const F& value) { write(to, value); }
template <typename T>
[[gnu::always_inline]] inline void store(T* to, const F& value) {
  write(to, narrowed(T{}, value));
}

/// The first n < 16 elements; the rest read as zero and are not written.
[[gnu::always_inline]] inline F load_part(const float* from, int64_t n) {
  F value{};
  __builtin_memcpy(value.part, from, static_cast<unsigned long>(n) * 4);
  return value;
}
template <typename T>
[[gnu::always_inline]] inline F load_part(const T* from, int64_t n) {
  H bits{};
  __builtin_memcpy(bits.part, from, static_cast<unsigned long>(n) * 2);
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
  x = select(x < -87.0F, -87.0F, x);
  x = select(x > 88.0F, 88.0F, x);
  const F shifted = x * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: the integer part stands in the low bits
  const F n = shifted - 12582912.0F;
  const F r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  F p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return bits_as<F>(bits_as<I>(p) + (numbers_as<I>(n) << 23));
}

/// Rows kStep, kStep / 2, … 1 apart change places with each other: kInRegister x kInRegister words are then transposed.
template <int kStep, int... kAt>
[[gnu::always_inline]] inline void exchange(U::Part (&rows)[kInRegister], std::integer_sequence<int, kAt...> all) {
  if constexpr (kStep > 0) {
    for (int i = 0; i < kInRegister; ++i) {
      if ((i & kStep) != 0) continue;
      const U::Part a = rows[i], b = rows[i + kStep];
      rows[i] = __builtin_shufflevector(a, b, ((kAt & kStep) != 0 ? kInRegister + kAt - kStep : kAt)...);
      rows[i + kStep] = __builtin_shufflevector(a, b, ((kAt & kStep) != 0 ? kInRegister + kAt : kAt + kStep)...);
    }
    exchange<kStep / 2>(rows, all);
  }
}

/// 16 x 16 words, a square of registers at a time.
[[gnu::always_inline]] inline void transpose(U (&tile)[kLanes]) {
  constexpr std::make_integer_sequence<int, kInRegister> kAll;
  U turned[kLanes];
  for (int r = 0; r < kRegisters; ++r) {
    for (int c = 0; c < kRegisters; ++c) {
      U::Part square[kInRegister];
      for (int i = 0; i < kInRegister; ++i) square[i] = tile[r * kInRegister + i].part[c];
      exchange<kInRegister / 2>(square, kAll);
      for (int i = 0; i < kInRegister; ++i) turned[c * kInRegister + i].part[r] = square[i];
    }
  }
  for (int i = 0; i < kLanes; ++i) tile[i] = turned[i];
}

}  // namespace
}  // namespace lockstep::kernels
