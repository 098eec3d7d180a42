// What decoding spends its time on: attention of one query over what a row has said so far, and products of few rows with
// weights. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

/// Products of q [dim] with keys [n, dim], n <= 16: lane i belongs to key i. All sixteen sums stay in registers, which
/// needs a count that the compiler knows.
template <typename T, typename Count>
[[gnu::always_inline]] inline F scores_of(const T* q, const T* keys, Count n, int64_t dim) {
  F sums[kLanes] = {};
  each_vector(dim, [&](int64_t i, auto get, auto) {
    const F mine = get(q + i);
    for (int64_t s = 0; s < n; ++s) sums[s] += mine * get(keys + s * dim + i);
  });
  U tile[kLanes];
  for (int s = 0; s < kLanes; ++s) tile[s] = bits_as<U>(sums[s]);
  transpose(tile);
  F total{};
  for (const U& lane : tile) total += bits_as<F>(lane);
  return total;
}

/// scores [n] -> their softmax, without the division: returns 1 / sum.
inline float exponentials(float* scores, int64_t n) {
  F best = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max(best, load(scores + i));
  float top = largest(best);
  for (; i < n; ++i) top = scores[i] > top ? scores[i] : top;
  F sums{};
  each_vector(n, [&](int64_t at, auto get, auto put) {
    F value = exp(get(scores + at) - top);
    if (at + kLanes > n) value = select(lane_numbers() < static_cast<int32_t>(n - at), value, 0.0F);
    put(scores + at, value);
    sums += value;
  });
  return 1.0F / sum(sums);
}

template <typename T>
void attend_one(const typename Table<T>::OneQuery& in) {
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(in.dim));
  for (int64_t s = 0; s < in.length; s += kLanes) {
    const int64_t n = in.length - s < kLanes ? in.length - s : kLanes;
    for (int64_t g = 0; g < in.group; ++g) {
      const T *q = in.q + g * in.dim, *keys = in.keys + s * in.dim;
      const F found = n == kLanes ? scores_of(q, keys, std::integral_constant<int64_t, kLanes>{}, in.dim)
                                  : scores_of(q, keys, n, in.dim);
      store_part(in.scores + g * in.length + s, found * scale, n);
    }
  }
  for (int64_t g = 0; g < in.group; ++g) {
    float* weights = in.scores + g * in.length;
    const float share = exponentials(weights, in.length);
    each_vector(in.dim, [&](int64_t i, auto get, auto put) {
      F even{}, odd{};
      int64_t s = 0;
      for (; s + 2 <= in.length; s += 2) {
        even += get(in.values + s * in.dim + i) * weights[s];
        odd += get(in.values + (s + 1) * in.dim + i) * weights[s + 1];
      }
      if (s < in.length) even += get(in.values + s * in.dim + i) * weights[s];
      put(in.out + g * in.dim + i, (even + odd) * share);
    });
  }
}

// Products of few rows with weights: one register at a time, so that as many sums as can be stay in registers.

/// The first n <= kWidth elements; the rest read as zero.
template <int kWidth, typename Count>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F read(const float* from, Count n) {
  typename Lanes<kWidth>::F value{};
  __builtin_memcpy(&value, from, static_cast<unsigned long>(n) * 4);
  return value;
}
template <int kWidth, typename T, typename Count>
[[gnu::always_inline]] inline typename Lanes<kWidth>::F read(const T* from, Count n) {
  typename Lanes<kWidth>::H bits{};
  __builtin_memcpy(&bits, from, static_cast<unsigned long>(n) * 2);
  return widened<kWidth>(T{}, bits);
}

/// All lanes added: the halves, the halves of those, and so on.
template <int kWidth>
[[gnu::always_inline]] inline float fold(typename Lanes<kWidth>::F value) {
  if constexpr (kWidth == 4) {
    return (value[0] + value[2]) + (value[1] + value[3]);
  } else {
    typename Lanes<kWidth / 2>::F halves[2];
    __builtin_memcpy(halves, &value, sizeof value);
    return fold<kWidth / 2>(halves[0] + halves[1]);
  }
}

/// Products of kRows rows of x with kOutputs rows of w. The order of a sum depends on dim alone.
template <int kWidth, int kRows, int kOutputs, typename T>
[[gnu::always_inline]] inline void multiply_tile(const typename Table<T>::FewRows& in, int64_t row, int64_t output) {
  typename Lanes<kWidth>::F sums[kRows * kOutputs] = {};
  const auto add = [&](int64_t i, auto n) __attribute__((always_inline)) {
    typename Lanes<kWidth>::F weights[kOutputs];
    for (int o = 0; o < kOutputs; ++o) weights[o] = read<kWidth>(in.w + (output + o) * in.w_stride + i, n);
    for (int r = 0; r < kRows; ++r) {
      const typename Lanes<kWidth>::F mine = read<kWidth>(in.x + (row + r) * in.dim + i, n);
      for (int o = 0; o < kOutputs; ++o) sums[r * kOutputs + o] += mine * weights[o];
    }
  };
  int64_t i = 0;
  for (; i + kWidth <= in.dim; i += kWidth) add(i, std::integral_constant<int64_t, kWidth>{});
  if (i < in.dim) add(i, in.dim - i);
  for (int64_t r = 0; r < kRows && row + r < in.rows; ++r) {
    for (int64_t o = 0; o < kOutputs; ++o) {
      const float bias = in.bias == nullptr ? 0.0F : in.bias[output + o];
      store_part(in.y + (row + r) * in.y_stride + output + o, fold<kWidth>(sums[r * kOutputs + o]) + bias, 1);
    }
  }
}

/// kWidth: lanes of a register; kSums: sums that stay in registers.
template <int kWidth, int kSums, typename T>
void multiply_rows(const typename Table<T>::FewRows& in) {
  constexpr int kRows = static_cast<int>(kRowsTogether), kOutputs = kSums / kRows;
  int64_t o = 0;
  if (in.rows == 1) {
    // Weights come from memory, which is read fastest as one stream: sixteen at a time got two thirds of it (Zen 4).
    for (; o < in.outputs; ++o) multiply_tile<kWidth, 1, 1, T>(in, 0, o);
    return;
  }
  for (; o + kOutputs <= in.outputs; o += kOutputs) {
    for (int64_t r = 0; r < in.rows; r += kRows) multiply_tile<kWidth, kRows, kOutputs, T>(in, r, o);
  }
  for (; o < in.outputs; ++o) {
    for (int64_t r = 0; r < in.rows; r += kRows) multiply_tile<kWidth, kRows, 1, T>(in, r, o);
  }
}

}  // namespace
}  // namespace lockstep::kernels
