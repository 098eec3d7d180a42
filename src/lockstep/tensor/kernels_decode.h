// What decoding spends its time on: products of few rows with weights, and attention of one query over what a row has said so
// far. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

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

// Products of few rows with weights, one register at a time.

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

/// Halves added, and the halves of those, until four lanes are left.
template <int kWidth>
[[gnu::always_inline]] inline Lanes<4>::F four_lanes(typename Lanes<kWidth>::F value) {
  if constexpr (kWidth == 4) {
    return value;
  } else {
    typename Lanes<kWidth / 2>::F halves[2];
    __builtin_memcpy(halves, &value, sizeof value);
    return four_lanes<kWidth / 2>(halves[0] + halves[1]);
  }
}
/// All lanes added: the halves, the halves of those, and so on.
template <int kWidth>
[[gnu::always_inline]] inline float fold(typename Lanes<kWidth>::F value) {
  const Lanes<4>::F four = four_lanes<kWidth>(value);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
/// The same of four values, side by side.
template <int kWidth>
[[gnu::always_inline]] inline Lanes<4>::F fold_four(const typename Lanes<kWidth>::F (&values)[4]) {
  const auto pair = [](Lanes<4>::F a, Lanes<4>::F b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  };
  const Lanes<4>::F front = pair(four_lanes<kWidth>(values[0]), four_lanes<kWidth>(values[1]));
  const Lanes<4>::F back = pair(four_lanes<kWidth>(values[2]), four_lanes<kWidth>(values[3]));
  return __builtin_shufflevector(front, back, 0, 2, 4, 6) + __builtin_shufflevector(front, back, 1, 3, 5, 7);
}

/// Sums that stay in registers: of so many rows and outputs, each in kChains parts, where an addition would else wait for the
/// one before it.
template <int kRowsOf, int kOutputsOf, int kChainsOf>
struct Sums {
  static constexpr int kRows = kRowsOf, kOutputs = kOutputsOf, kChains = kChainsOf;
};

/// Products of rows of x with the first n rows of w. found: of each row of x, kLanes apart; what is behind n there is anything.
template <int kWidth, typename Of, typename T>
[[gnu::always_inline]] inline void multiply_tile(const float* x, const T* w, int64_t w_stride, int64_t n, int64_t dim,
                                                 float* found) {
  using Part = typename Lanes<kWidth>::F;
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  const T* rows[Of::kOutputs];
  for (int64_t o = 0; o < Of::kOutputs; ++o) rows[o] = w + (o < n ? o : n - 1) * w_stride;
  Part sums[Of::kRows][Of::kOutputs][Of::kChains] = {};
  const auto add = [&](int chain, int64_t i, auto lanes) __attribute__((always_inline)) {
    Part weights[Of::kOutputs];
    for (int o = 0; o < Of::kOutputs; ++o) weights[o] = read<kWidth>(rows[o] + i, lanes);
    for (int r = 0; r < Of::kRows; ++r) {
      const Part mine = read<kWidth>(x + r * dim + i, lanes);
      for (int o = 0; o < Of::kOutputs; ++o) sums[r][o][chain] += mine * weights[o];
    }
  };
  constexpr std::integral_constant<int64_t, kWidth> kWhole;
  int64_t i = 0;
  for (; i + Of::kChains * kWidth <= dim; i += Of::kChains * kWidth) {
    if (Of::kOutputs > 1 && i % kLine == 0) {  // a processor foresees one stream, not the next rows of several (Zen 4)
      for (int o = 0; o < Of::kOutputs; ++o) __builtin_prefetch(rows[o] + Of::kOutputs * w_stride + i, 0, 2);
    }
#pragma GCC unroll 4
    for (int c = 0; c < Of::kChains; ++c) add(c, i + c * kWidth, kWhole);
  }
  for (; i + kWidth <= dim; i += kWidth) add(0, i, kWhole);
  if (i < dim) add(0, i, dim - i);
  for (int r = 0; r < Of::kRows; ++r) {
    for (int o = 0; o < Of::kOutputs; ++o) {
      Part total = sums[r][o][0];
      for (int c = 1; c < Of::kChains; ++c) total += sums[r][o][c];
      found[r * kLanes + o] = fold<kWidth>(total);
    }
  }
}

/// Sixteen outputs at a time, which are rounded together.
template <int kWidth, typename Of, typename T>
void multiply_rows_by(const typename Table<T>::FewRows& in) {
  for (int64_t begin = 0; begin < in.outputs; begin += kLanes) {
    const int64_t n = in.outputs - begin < kLanes ? in.outputs - begin : kLanes;
    const F bias = in.bias == nullptr ? F{} : load_part(in.bias + begin, n);
    for (int64_t row = 0; row < in.rows; row += Of::kRows) {
      float found[Of::kRows * kLanes] = {};
      for (int64_t o = 0; o < n; o += Of::kOutputs) {
        multiply_tile<kWidth, Of>(in.x + row * in.dim, in.w + (begin + o) * in.w_stride, in.w_stride, n - o, in.dim,
                                  found + o);
      }
      for (int64_t r = 0; r < Of::kRows && row + r < in.rows; ++r) {
        store_part(in.y + (row + r) * in.y_stride + begin, load(found + r * kLanes) + bias, n);
      }
    }
  }
}

/// kWidth: lanes of a register; kSums: registers of sums that there are.
template <int kWidth, int kSums, typename T>
void multiply_rows(const typename Table<T>::FewRows& in) {
  constexpr int kRows = static_cast<int>(kRowsTogether);
  // For one row memory is what counts, and gives one stream of weights up to three times as fast as several (Zen 4).
  if (in.rows == 1) return multiply_rows_by<kWidth, Sums<1, 1, 4>, T>(in);
  multiply_rows_by<kWidth, Sums<kRows, kSums / kRows, 1>, T>(in);
}

// Attention of one query: keys and values are read once for several heads.

/// Keys, and registers of values, that are taken together.
constexpr int kTogether = 4;

/// scores [kHeads, stride] = q [kHeads, dim] * keys [n <= kTogether, dim]^T * scale.
template <int kWidth, int kHeads, typename T>
[[gnu::always_inline]] inline void score_keys(const float* q, const T* keys, int64_t n, int64_t dim, float* scores,
                                              int64_t stride, float scale) {
  using Part = typename Lanes<kWidth>::F;
  const T* key[kTogether];  // behind the last one: that one again
  for (int64_t s = 0; s < kTogether; ++s) key[s] = keys + (s < n ? s : n - 1) * dim;
  Part sums[kHeads][kTogether] = {};
  const auto add = [&](int64_t i, auto lanes) __attribute__((always_inline)) {
    Part theirs[kTogether];
    for (int s = 0; s < kTogether; ++s) theirs[s] = read<kWidth>(key[s] + i, lanes);
    for (int h = 0; h < kHeads; ++h) {
      const Part mine = read<kWidth>(q + h * dim + i, lanes);
      for (int s = 0; s < kTogether; ++s) sums[h][s] += mine * theirs[s];
    }
  };
  int64_t i = 0;
  for (; i + kWidth <= dim; i += kWidth) add(i, std::integral_constant<int64_t, kWidth>{});
  if (i < dim) add(i, dim - i);
  for (int h = 0; h < kHeads; ++h) {
    const Lanes<4>::F found = fold_four<kWidth>(sums[h]) * scale;
    __builtin_memcpy(scores + h * stride, &found, static_cast<unsigned long>(n) * 4);
  }
}

/// out [kHeads, dim] = weights [kHeads, length] * values [length, dim], of kParts registers, the last of which has n lanes.
template <int kWidth, int kHeads, int kParts, typename T, typename Count>
[[gnu::always_inline]] inline void weigh_values(const float* weights, const T* values, int64_t length, int64_t dim,
                                                float* out, Count n) {
  using Part = typename Lanes<kWidth>::F;
  Part sums[kHeads][kParts] = {};
  for (int64_t s = 0; s < length; ++s) {
    Part theirs[kParts];
    for (int p = 0; p < kParts; ++p) theirs[p] = read<kWidth>(values + s * dim + p * kWidth, n);
    for (int h = 0; h < kHeads; ++h) {
      for (int p = 0; p < kParts; ++p) sums[h][p] += theirs[p] * weights[h * length + s];
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kParts; ++p) {
      __builtin_memcpy(out + h * dim + p * kWidth, &sums[h][p], static_cast<unsigned long>(n) * 4);
    }
  }
}

/// Of kHeads of the heads, from `first` on.
template <int kWidth, int kHeads, typename T>
void attend_heads(const typename Table<T>::OneQuery& in, int64_t first) {
  float *const wide = in.scratch, *const scores = wide + kHeads * in.dim;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(in.dim));
  each_vector(kHeads * in.dim, [&](int64_t i, auto get, auto put) { put(wide + i, get(in.q + first * in.dim + i)); });
  for (int64_t s = 0; s < in.length; s += kTogether) {
    const int64_t n = in.length - s < kTogether ? in.length - s : kTogether;
    score_keys<kWidth, kHeads>(wide, in.keys + s * in.dim, n, in.dim, scores + s, in.length, scale);
  }
  float shares[kHeads];
  for (int h = 0; h < kHeads; ++h) shares[h] = exponentials(scores + h * in.length, in.length);
  constexpr std::integral_constant<int64_t, kWidth> kWhole;
  int64_t i = 0;
  for (; i + kTogether * kWidth <= in.dim; i += kTogether * kWidth) {
    weigh_values<kWidth, kHeads, kTogether>(scores, in.values + i, in.length, in.dim, wide + i, kWhole);
  }
  for (; i + kWidth <= in.dim; i += kWidth) {
    weigh_values<kWidth, kHeads, 1>(scores, in.values + i, in.length, in.dim, wide + i, kWhole);
  }
  if (i < in.dim) {
    weigh_values<kWidth, kHeads, 1>(scores, in.values + i, in.length, in.dim, wide + i, in.dim - i);
  }
  for (int h = 0; h < kHeads; ++h) {
    each_vector(in.dim, [&](int64_t at, auto get, auto put) {
      put(in.out + (first + h) * in.dim + at, get(wide + h * in.dim + at) * shares[h]);
    });
  }
}

/// The number of heads is known to the compiler, so that their sums stay in registers.
template <int kWidth, int kHeads, typename T>
void attend_from(const typename Table<T>::OneQuery& in, int64_t first) {
  if constexpr (kHeads > 1) {
    if (in.group - first < kHeads) return attend_from<kWidth, kHeads - 1, T>(in, first);
  }
  attend_heads<kWidth, kHeads, T>(in, first);
}

template <int kWidth, int kSums, typename T>
void attend_one(const typename Table<T>::OneQuery& in) {
  constexpr int kMost = kSums / kTogether;
  for (int64_t head = 0; head < in.group; head += kMost) attend_from<kWidth, kMost, T>(in, head);
}

}  // namespace
}  // namespace lockstep::kernels
