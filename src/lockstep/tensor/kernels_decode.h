// What decoding spends its time on: attention of one query over what a row has said so far, and products of few rows with
// weights. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

/// Lane i: the sum over all lanes of sums[i].
[[gnu::always_inline]] inline F sum_each(const F (&sums)[kLanes]) {
  U tile[kLanes];
  __builtin_memcpy(tile, sums, sizeof tile);
  transpose(tile);
  F total{};
  for (const U& lane : tile) total += reinterpret_cast<F>(lane);
  return total;
}

/// Products of q [dim] with keys [n, dim], n <= 16: lane i belongs to key i. All sixteen sums stay in registers, which
/// needs a count that the compiler knows.
template <typename T, typename Count>
[[gnu::always_inline]] inline F scores_of(const T* q, const T* keys, Count n, int64_t dim) {
  F sums[kLanes] = {};
  each_vector(dim, [&](int64_t i, auto get, auto) {
    const F mine = get(q + i);
    for (int64_t s = 0; s < n; ++s) sums[s] += mine * get(keys + s * dim + i);
  });
  return sum_each(sums);
}

/// scores [n] -> their softmax, without the division: returns 1 / sum.
inline float exponentials(float* scores, int64_t n) {
  F best = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max(best, load(scores + i));
  float top = largest(best);
  for (; i < n; ++i) top = scores[i] > top ? scores[i] : top;
  F sums{};
  each_vector(n, [&](int64_t at, auto get, auto put) {
    F value = exp(get(scores + at) - top);
    if (at + kLanes > n) {
      for (int64_t lane = n - at; lane < kLanes; ++lane) value[lane] = 0;
    }
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

/// Products of kRows rows of x with kOutputs rows of w: lane r * kOutputs + o. The order of a sum depends on dim alone.
template <int kRows, int kOutputs, typename T>
[[gnu::always_inline]] inline void multiply_tile(const typename Table<T>::FewRows& in, int64_t row, int64_t output) {
  F sums[kLanes] = {};
  each_vector(in.dim, [&](int64_t i, auto get, auto) {
    F weights[kOutputs];
    for (int o = 0; o < kOutputs; ++o) weights[o] = get(in.w + (output + o) * in.w_stride + i);
    for (int r = 0; r < kRows; ++r) {
      const F mine = get(in.x + (row + r) * in.dim + i);
      for (int o = 0; o < kOutputs; ++o) sums[r * kOutputs + o] += mine * weights[o];
    }
  });
  float found[kLanes];
  store(found, sum_each(sums));
  for (int64_t r = 0; r < kRows && row + r < in.rows; ++r) {
    for (int64_t o = 0; o < kOutputs; ++o) {
      const float bias = in.bias == nullptr ? 0.0F : in.bias[output + o];
      store_part(in.y + (row + r) * in.y_stride + output + o, splat(found[r * kOutputs + o] + bias), 1);
    }
  }
}

template <typename T>
void multiply_rows(const typename Table<T>::FewRows& in) {
  constexpr int kGroup = static_cast<int>(kRowsTogether);
  int64_t o = 0;
  if (in.rows == 1) {
    for (; o + kLanes <= in.outputs; o += kLanes) multiply_tile<1, kLanes, T>(in, 0, o);
    for (; o < in.outputs; ++o) multiply_tile<1, 1, T>(in, 0, o);
    return;
  }
  for (; o + kGroup <= in.outputs; o += kGroup) {
    for (int64_t r = 0; r < in.rows; r += kGroup) multiply_tile<kGroup, kGroup, T>(in, r, o);
  }
  for (; o < in.outputs; ++o) {
    for (int64_t r = 0; r < in.rows; r += kGroup) multiply_tile<kGroup, 1, T>(in, r, o);
  }
}

}  // namespace
}  // namespace lockstep::kernels
