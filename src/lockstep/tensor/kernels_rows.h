// Norm, gate, rotation and loss of rows. Included only by the kernels_*.cpp files.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

template <typename T>
void rms_norm(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t dim, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    F squares{};
    each_vector(dim, [&](int64_t i, auto get, auto) {
      const F v = get(x + i);
      squares += v * v;
    });
    const float scale = 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(dim) + eps);
    rstd[r] = scale;
    each_vector(dim, [&](int64_t i, auto get, auto put) { put(y + i, get(x + i) * scale * get(w + i)); });
  }
}

template <typename T>
void rms_norm_backward(const T* g, const T* x, const T* w, const float* rstd, T* dx, float* dw, int64_t rows,
                       int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, g += dim, x += dim, dx += dim) {
    const float scale = rstd[r];
    F dots{};
    each_vector(dim, [&](int64_t i, auto get, auto put) {
      const F gx = get(g + i) * get(x + i);
      dots += gx * get(w + i);
      put(dw + i, get(dw + i) + gx * scale);
    });
    const float correction = sum(dots) * scale * scale / static_cast<float>(dim);
    each_vector(dim, [&](int64_t i, auto get, auto put) {
      put(dx + i, (get(g + i) * get(w + i) - get(x + i) * correction) * scale);
    });
  }
}

template <typename T>
void swiglu(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, y += dim) {
    each_vector(dim, [&](int64_t i, auto get, auto put) {
      const F gate = get(gate_up + i);
      put(y + i, gate / (exp(-gate) + 1.0F) * get(gate_up + dim + i));
    });
  }
}

template <typename T>
void swiglu_backward(const T* g, const T* gate_up, T* dgate_up, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, g += dim, gate_up += 2 * dim, dgate_up += 2 * dim) {
    each_vector(dim, [&](int64_t i, auto get, auto put) {
      const F gate = get(gate_up + i);
      const F grad = get(g + i);
      const F sigmoid = 1.0F / (exp(-gate) + 1.0F);
      const F silu = gate * sigmoid;
      put(dgate_up + i, grad * get(gate_up + dim + i) * (sigmoid + silu * (1.0F - sigmoid)));
      put(dgate_up + dim + i, grad * silu);
    });
  }
}

/// y = x rotated by the tables; direction -1 turns back (the gradient).
template <typename T>
[[gnu::always_inline]] inline void rotate(const T* x, const float* cos, const float* sin, T* y, int64_t dim,
                                          bool back) {
  const int64_t half = dim / 2;
  each_vector(half, [&](int64_t i, auto get, auto put) {
    const F a = get(x + i);
    const F b = get(x + half + i);
    const F ca = get(cos + i);
    const F cb = get(cos + half + i);
    const F sa = get(sin + i);
    const F sb = get(sin + half + i);
    put(y + i, back ? a * ca + b * sb : a * ca - b * sa);
    put(y + half + i, back ? b * cb - a * sa : b * cb + a * sb);
  });
}

template <typename T>
[[gnu::always_inline]] inline void copy(const T* from, T* to, int64_t n) {
  __builtin_memcpy(to, from, static_cast<unsigned long>(n) * sizeof(T));
}

template <typename T>
void split_heads(const T* qkv, const float* cos, const float* sin, T* q, T* k, T* v, int64_t rows, HeadLayout layout) {
  const int64_t dim = layout.head_dim;
  for (int64_t r = 0; r < rows; ++r, cos += dim, sin += dim) {
    for (int64_t n = 0; n < layout.heads; ++n, qkv += dim, q += dim) rotate(qkv, cos, sin, q, dim, false);
    for (int64_t n = 0; n < layout.kv_heads; ++n, qkv += dim) {
      const T* first = k;
      rotate(qkv, cos, sin, k, dim, false);
      k += dim;
      for (int64_t c = 1; c < layout.copies; ++c, k += dim) copy(first, k, dim);
    }
    for (int64_t n = 0; n < layout.kv_heads; ++n, qkv += dim) {
      for (int64_t c = 0; c < layout.copies; ++c, v += dim) copy(qkv, v, dim);
    }
  }
}

/// Adds `copies` heads that stand behind one another.
template <typename T>
[[gnu::always_inline]] inline void sum_copies(const T* from, float* to, int64_t dim, int64_t copies) {
  each_vector(dim, [&](int64_t i, auto get, auto put) {
    F total = get(from + i);
    for (int64_t c = 1; c < copies; ++c) total += get(from + c * dim + i);
    put(to + i, total);
  });
}

template <typename T>
void join_heads(const T* dq, const T* dk, const T* dv, const float* cos, const float* sin, T* dqkv, int64_t rows,
                HeadLayout layout) {
  const int64_t dim = layout.head_dim;
  T folded[512];
  float total[512];
  for (int64_t r = 0; r < rows; ++r, cos += dim, sin += dim) {
    for (int64_t n = 0; n < layout.heads; ++n, dqkv += dim, dq += dim) rotate(dq, cos, sin, dqkv, dim, true);
    for (int64_t n = 0; n < layout.kv_heads; ++n, dqkv += dim, dk += dim * layout.copies) {
      sum_copies(dk, total, dim, layout.copies);
      each_vector(dim, [&](int64_t i, auto get, auto put) { put(folded + i, get(total + i)); });
      rotate(folded, cos, sin, dqkv, dim, true);
    }
    for (int64_t n = 0; n < layout.kv_heads; ++n, dqkv += dim, dv += dim * layout.copies) {
      sum_copies(dv, total, dim, layout.copies);
      each_vector(dim, [&](int64_t i, auto get, auto put) { put(dqkv + i, get(total + i)); });
    }
  }
}

[[gnu::always_inline]] inline float as_float(float value) { return value; }
[[gnu::always_inline]] inline float as_float(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  __builtin_memcpy(&wide, &bits, sizeof wide);
  return wide;
}

[[gnu::always_inline]] inline float as_float(F16 value) { return load_part(&value, 1)[0]; }

template <typename T>
[[gnu::always_inline]] inline float row_max(const T* row, int64_t dim) {
  F best = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) best = max(best, load(row + i));
  float top = largest(best);
  for (; i < dim; ++i) top = as_float(row[i]) > top ? as_float(row[i]) : top;
  return top;
}

/// exp(row - top) into scratch; returns the sum.
template <typename T>
[[gnu::always_inline]] inline float exp_row(const T* row, float top, float* scratch, int64_t dim) {
  F total{};
  each_vector(dim, [&](int64_t i, auto get, auto put) {
    const F e = exp(get(row + i) - top);
    put(scratch + i, e);
    total += dim - i >= kLanes ? e : F{};
  });
  float rest = 0;
  for (int64_t i = dim / kLanes * kLanes; i < dim; ++i) rest += scratch[i];
  return sum(total) + rest;
}

template <typename T>
void cross_entropy(T* logits, const int64_t* targets, double* losses, uint8_t* hits, int64_t rows, int64_t dim,
                   float weight, bool grads, float* scratch) {
  for (int64_t r = 0; r < rows; ++r, logits += dim) {
    const int64_t target = targets[r];
    losses[r] = 0;
    hits[r] = 0;
    if (target < 0) {
      if (grads) __builtin_memset(logits, 0, static_cast<unsigned long>(dim) * sizeof(T));
      continue;
    }
    const float top = row_max(logits, dim);
    const float total = exp_row(logits, top, scratch, dim);
    const float own = as_float(logits[target]);
    losses[r] = std::log(static_cast<double>(total)) + (static_cast<double>(top) - static_cast<double>(own));
    bool hit = own == top;  // among equals the first counts, as argmax has it
    for (int64_t i = 0; hit && i < target; ++i) hit = as_float(logits[i]) < top;
    hits[r] = hit ? 1 : 0;
    if (!grads) continue;
    const float scale = weight / total;
    each_vector(dim, [&](int64_t i, auto get, auto put) { put(logits + i, get(scratch + i) * scale); });
    const float at_target[kLanes] = {scratch[target] * scale - weight};
    store_part(logits + target, load(at_target), 1);
  }
}

/// Of kInRegister numbers of splitmix64 from `key` + `first` steps on: the upper halves. Source: Steele et al. 2014, "Fast
/// splittable generators".
template <int... kAt>
[[gnu::always_inline]] inline U::Part random_words(uint64_t key, uint64_t first, std::integer_sequence<int, kAt...>) {
  typedef uint64_t Wide __attribute__((vector_size(4 * kInRegister)));
  constexpr int kHalf = kInRegister / 2;
  U::Part halves[2];
  for (int h = 0; h < 2; ++h) {
    Wide z;
    for (int i = 0; i < kHalf; ++i) z[i] = first + static_cast<uint64_t>(h * kHalf + i + 1);
    z = z * 0x9E3779B97F4A7C15ULL + key;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    halves[h] = reinterpret_cast<U::Part>(z);
  }
  const U::Part upper = __builtin_shufflevector(halves[0], halves[1], (2 * kAt + 1)...);
  return upper ^ (upper >> 31);  // of z ^ (z >> 31)
}

template <typename T>
void drop(const typename Table<T>::Dropped& in) {
  each_vector(in.n, [&](int64_t i, auto get, auto put) {
    const U words([&](int part) {
      return random_words(in.key, in.first + static_cast<uint64_t>(i + part * kInRegister),
                          std::make_integer_sequence<int, kInRegister>{});
    });
    const F kept = get(in.x + i) * in.scale;
    put(in.y + i, select(words >= U(in.threshold), kept, F{}));
  });
}

/// An exponent of ones alone: infinite or NaN.
inline uint32_t is_wild(float value) {
  constexpr uint32_t kExponent = 0x7F800000U;
  return (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
}
inline uint16_t is_wild(Bf16 value) {
  constexpr uint16_t kExponent = 0x7F80U;
  return (value.bits & kExponent) == kExponent ? uint16_t{1} : uint16_t{0};
}

inline uint16_t is_wild(F16 value) {
  constexpr uint16_t kExponent = 0x7C00U;
  return (value.bits & kExponent) == kExponent ? uint16_t{1} : uint16_t{0};
}

template <typename T>
bool all_finite(const T* x, int64_t n) {
  decltype(is_wild(T{})) wild = 0;
  for (int64_t i = 0; i < n; ++i) wild = static_cast<decltype(wild)>(wild | is_wild(x[i]));
  return wild == 0;
}

}  // namespace
}  // namespace lockstep::kernels
