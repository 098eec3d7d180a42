// Packing and element-wise parts of attention. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>

#include "lockstep/tensor/kernels_decode.h"
#include "lockstep/tensor/kernels_panel.h"
#include "lockstep/tensor/kernels_rows.h"
#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

template <typename T>
void transpose_words(const uint32_t* in, int64_t in_stride, uint32_t* out, int64_t out_stride, int64_t rows,
                     int64_t words) {
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < words; c += 16) {
      U tile[16];
      for (int i = 0; i < 16; ++i) tile[i] = read<U>(in + (r + i) * in_stride + c);
      transpose(tile);
      for (int i = 0; i < 16; ++i) write(out + (c + i) * out_stride + r, tile[i]);
    }
  }
}

inline void unpair_rows(const uint32_t* in, float* out, int64_t words, int64_t n) {
  __builtin_memcpy(out, in, static_cast<unsigned long>(words * n) * 4);
}
template <typename T>
void unpair_rows(const uint32_t* in, T* out, int64_t words, int64_t n) {
  for (int64_t w = 0; w < words; ++w) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const U pair = read<U>(in + w * n + i);
      write(out + 2 * w * n + i, numbers_as<H>(pair & 0xFFFFU));
      write(out + (2 * w + 1) * n + i, numbers_as<H>(pair >> 16));
    }
  }
}

inline void pair_rows(const float* in, int64_t in_stride, float* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    __builtin_memcpy(out + r * n, in + r * in_stride, static_cast<unsigned long>(n) * 4);
  }
}
template <typename T>
void pair_rows(const T* in, int64_t in_stride, T* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r += 2) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const H even = read<H>(in + r * in_stride + i), odd = read<H>(in + (r + 1) * in_stride + i);
      write(out + r * n + 2 * i, numbers_as<U>(even) | (numbers_as<U>(odd) << 16));
    }
  }
}

template <typename T>
void row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, float* sums, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    F total{};
    each_vector(n, [&](int64_t i, auto get, auto) { total += get(a + r * a_stride + i) * get(b + r * b_stride + i); });
    sums[r] = sum(total);
  }
}

/// Two rows of keys at 16 queries of a tile: plain, or paired where T has 16 bits.
inline void store_pair(float* tile, int64_t queries, int64_t s, int64_t t, F even, F odd) {
  store(tile + s * queries + t, even);
  store(tile + (s + 1) * queries + t, odd);
}
template <typename T>
void store_pair(T* tile, int64_t queries, int64_t s, int64_t t, F even, F odd) {
  write(tile + s * queries + 2 * t, numbers_as<U>(narrowed(T{}, even)) | (numbers_as<U>(narrowed(T{}, odd)) << 16));
}

/// Which of sixteen queries may not look at a key: `ahead` by so many tokens the first of them is.
[[gnu::always_inline]] inline I hidden_from(int64_t ahead, int64_t window, I lane) {
  const I distance = lane + static_cast<int32_t>(ahead);  // below 0, the query comes before the key: huge, unsigned
  return bits_as<U>(distance) >= static_cast<uint32_t>(window);
}

template <typename T>
bool softmax_tile(const typename Table<T>::SoftmaxTile& tile) {
  const TileShape& shape = tile.shape;
  const I lane = lane_numbers();
  I grown{};
  for (int64_t t = 0; t < shape.queries; t += kLanes) {
    // Behind these keys none of the sixteen looks anywhere.
    const int64_t seen = shape.causal ? t + kLanes + shape.diagonal : shape.key_limit;
    const int64_t end = seen < shape.key_limit ? seen : shape.key_limit;
    const int64_t keys = end < 0 ? 0 : end < shape.keys ? end : shape.keys;
    // Before these, none.
    const int64_t out_of_sight = shape.causal ? t + shape.diagonal - shape.window + 1 : 0;
    const int64_t first = out_of_sight > 0 ? out_of_sight : 0;
    const auto hidden = [&](int64_t s) __attribute__((always_inline)) {
      return hidden_from(t + shape.diagonal - s, shape.window, lane);
    };
    const bool crosses = shape.causal && (keys - 1 > t + shape.diagonal || first < out_of_sight + kLanes - 1);
    const auto score = [&](int64_t s) __attribute__((always_inline)) {
      const F x = load(tile.scores + s * shape.queries + t) * shape.scale;
      return crosses ? select(hidden(s), -1e30F, x) : x;
    };
    const F before = load(tile.most + t);
    F most = before;
    for (int64_t s = first; s < keys; ++s) most = max(score(s), most);
    const F shrink = exp(before - most);
    F sums = load(tile.sums + t) * shrink;
    const auto prob = [&](int64_t s) __attribute__((always_inline)) {
      if (s < first || s >= keys) return F{};
      const F p = exp(score(s) - most);
      return crosses ? select(hidden(s), F{}, p) : p;
    };
    for (int64_t s = 0; s < shape.keys; s += 2) {
      const F even = prob(s), odd = prob(s + 1);
      sums += even + odd;
      store_pair(tile.probs, shape.queries, s, t, even, odd);
    }
    grown = grown | (most > before);
    store(tile.most + t, most);
    store(tile.sums + t, sums);
    store(tile.shrink + t, select(most > before, shrink, 1.0F));
  }
  bool any = false;
  for (int i = 0; i < 16; ++i) any = any || grown[i] != 0;
  return any;
}

inline void scale_columns(float* x, const float* by, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; i += kLanes) store(x + r * n + i, load(x + r * n + i) * load(by + i));
  }
}

/// Two rows of keys at a time, so that their score gradients can be stored paired.
template <typename T>
void attention_tile(const typename Table<T>::GradientTile& tile) {
  const TileShape& shape = tile.shape;
  const I lane = lane_numbers();
  const auto row = [&](int64_t s, int64_t t) __attribute__((always_inline)) {
    const int64_t at = s * shape.queries + t;
    F p = exp(load(tile.scores + at) * shape.scale - load(tile.lse + t));
    if (s >= shape.key_limit) p = F{};
    const int64_t ahead = t + shape.diagonal - s;
    if (shape.causal && (ahead < 0 || ahead + kLanes > shape.window)) {
      p = select(hidden_from(ahead, shape.window, lane), F{}, p);
    }
    const F d = p * (load(tile.dprobs + at) - load(tile.dots + t)) * shape.scale;
    store(tile.probs + at, p);
    store(tile.dscores + at, d);
    return d;
  };
  for (int64_t s = 0; s < shape.keys; s += 2) {
    for (int64_t t = 0; t < shape.queries; t += kLanes) {
      const F even = row(s, t);
      const F odd = row(s + 1, t);
      if constexpr (sizeof(T) == 2) store_pair(tile.dscores_paired, shape.queries, s, t, even, odd);
    }
  }
}

template <typename T>
void store_rows(const float* in, T* out, int64_t out_stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    each_vector(n, [&](int64_t i, auto get, auto put) { put(out + r * out_stride + i, get(in + r * n + i)); });
  }
}

template <typename T>
void widen_rows(const T* in, int64_t in_stride, float* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    each_vector(n, [&](int64_t i, auto get, auto put) { put(out + r * n + i, get(in + r * in_stride + i)); });
  }
}

template <typename T>
void store_transposed(const float* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows, int64_t n) {
  alignas(64) float block[16 * 16];
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < n; c += 16) {
      transpose_words<T>(reinterpret_cast<const uint32_t*>(in + c * in_stride + r), in_stride,
                         reinterpret_cast<uint32_t*>(block), 16, 16, 16);
      for (int64_t i = 0; i < 16 && r + i < rows; ++i) store(out + (r + i) * out_stride + c, load(block + i * 16));
    }
  }
}

/// kWidth: the numbers that a register holds; kSums: how many registers may hold sums beside what is added to them.
template <typename T, int kWidth, int kSums>
constexpr Table<T> make_table() {
  return {.rms_norm = rms_norm<T>,
          .rms_norm_backward = rms_norm_backward<T>,
          .swiglu = swiglu<T>,
          .swiglu_backward = swiglu_backward<T>,
          .split_heads = split_heads<T>,
          .join_heads = join_heads<T>,
          .cross_entropy = cross_entropy<T>,
          .attend_one = attend_one<kWidth, kSums, T>,
          .multiply_rows = multiply_rows<kWidth, kSums, T>,
          .drop = drop<T>,
          .all_finite = all_finite<T>,
          .transpose_words = transpose_words<T>,
          .unpair_rows = unpair_rows,
          .pair_rows = pair_rows,
          .row_dots = row_dots<T>,
          .softmax_tile = softmax_tile<T>,
          .scale_columns = scale_columns,
          .attention_tile = attention_tile<T>,
          .store_transposed = store_transposed<T>,
          .store_rows = store_rows<T>,
          .widen_rows = widen_rows<T>,
          .multiply_panel = multiply_panel,
          .panel_rows = kPanelRows,
          .multiply_panel_to = multiply_panel_as<false, float, T>,
          .multiply_panel_of = multiply_panel_as<false, T, float>};
}

}  // namespace
}  // namespace lockstep::kernels
