// Row kernels for CPUs: one table of functions for each element type, compiled for three instruction sets and chosen
// once at run time. Raw pointers, single-threaded; callers split rows with parallel_rows.
//
// The bits of a result depend on the instruction set alone, never on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace lockstep::kernels {

/// bfloat16 as its bits; LibTorch's own type has the same layout.
struct Bf16 {
  uint16_t bits;
};

/// float16 as its bits, likewise.
struct F16 {
  uint16_t bits;
};

/// Rows of FewRows::x stand in groups of so many.
inline constexpr int64_t kRowsTogether = 4;

/// out [rows, columns <= kPanelColumns] (+)= a [rows, depth] * b [depth, kPanelColumns], summed in float32. Each sum goes over
/// depth in its order, whatever stands beside it. With an a_step of 0 the rows of a are woven: pieces
/// [depth, Table::panel_rows] of as many rows, one behind the other. Callers add a sum of more than kPanelDepth in pieces: a
/// longer one loses more bits, and a panel of it would no longer fit in 32 KiB.
inline constexpr int64_t kPanelColumns = 16, kPanelDepth = 384;
template <typename B, typename Out>
struct PanelProduct {
  const float* a;
  const B* b;
  Out* out;
  int64_t a_step, b_step, out_step;
  int64_t rows, columns, depth;
  bool add;
  bool far = false;  // a comes from memory, and is asked for before it is needed; woven, it never does
  // What is summed beside it: left [rows, ranks] * right [ranks, kPanelColumns].
  const float *left = nullptr, *right = nullptr;
  int64_t left_step = 0, right_step = 0, ranks = 0;
};

/// Which parts of a fused projection are which: N query heads, K key heads, K value heads, H elements each.
struct HeadLayout {
  int64_t heads, kv_heads, head_dim;
  int64_t copies;  // each kv head is written this many times, one behind the other
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// A tile [keys, queries] of attention: entry (s, t) counts when s < key_limit and (not causal or 0 <= t + diagonal - s <
/// window). Scores are multiplied by `scale`.
struct TileShape {
  static constexpr int64_t kNoWindow = 0x7FFFFFFF;
  int64_t keys, queries, key_limit, diagonal;
  bool causal;
  int64_t window;
  float scale;
};

template <typename T>
struct Table {
  void (*rms_norm)(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t dim, float eps);
  /// dw [dim] is added to.
  void (*rms_norm_backward)(const T* g, const T* x, const T* w, const float* rstd, T* dx, float* dw, int64_t rows,
                            int64_t dim);
  /// gate_up [rows, 2 * dim] -> y [rows, dim].
  void (*swiglu)(const T* gate_up, T* y, int64_t rows, int64_t dim);
  void (*swiglu_backward)(const T* g, const T* gate_up, T* dgate_up, int64_t rows, int64_t dim);
  /// qkv [rows, width] -> q [rows, N, H], k and v [rows, K * copies, H], q and k rotated; cos, sin [rows, H].
  void (*split_heads)(const T* qkv, const float* cos, const float* sin, T* q, T* k, T* v, int64_t rows,
                      HeadLayout layout);
  void (*join_heads)(const T* dq, const T* dk, const T* dv, const float* cos, const float* sin, T* dqkv, int64_t rows,
                     HeadLayout layout);
  /// Cross entropy of each row. With `grads` the row is overwritten by weight * (softmax - one_hot), zeros when
  /// ignored. `scratch` holds dim floats. Ignored rows (target < 0) give loss 0, hit 0.
  void (*cross_entropy)(T* logits, const int64_t* targets, double* losses, uint8_t* hits, int64_t rows, int64_t dim,
                        float weight, bool grads, float* scratch);

  /// One query for each of `group` heads that share keys and values: q, out [group, dim]; keys, values [length, dim].
  /// Scale 1/sqrt(dim).
  struct OneQuery {
    const T *q, *keys, *values;
    T* out;
    float* scratch;  // scratch_floats()
    int64_t group, length, dim;
    int64_t scratch_floats() const { return group * (length + dim); }
  };
  void (*attend_one)(const OneQuery& query);

  /// y [rows, y_stride] = x [rows, dim] * w [outputs, w_stride]^T (+ bias [outputs], unless null), summed in float32 and
  /// rounded once. Memory of x goes on to a multiple of kRowsTogether rows, unless there is one row alone. A row's result
  /// depends on that row alone, and on whether it is the only one.
  struct FewRows {
    const float* x;
    const T* w;
    const float* bias;
    T* y;
    int64_t w_stride, y_stride;
    int64_t rows, outputs, dim;
  };
  void (*multiply_rows)(const FewRows& in);

  /// y [n] = x * scale where the upper half of number `first` + i of splitmix64 from `key` on is not below `threshold`, else 0.
  struct Dropped {
    const T* x;
    T* y;
    int64_t n;
    uint64_t key, first;
    uint32_t threshold;
    float scale;
  };
  void (*drop)(const Dropped& in);

  /// Neither infinite nor NaN, all of x [n].
  bool (*all_finite)(const T* x, int64_t n);

  // Parts of attention; "words" are 32 bits: two bf16 or one float.
  /// rows x words, row stride in words -> out [words, out_stride] transposed; rows and words are multiples of 16.
  void (*transpose_words)(const uint32_t* in, int64_t in_stride, uint32_t* out, int64_t out_stride, int64_t rows,
                          int64_t words);
  /// Undoes the pairing of transpose_words: in [words, n] -> out [words * (4 / sizeof(T)), n] plain rows.
  void (*unpair_rows)(const uint32_t* in, T* out, int64_t words, int64_t n);
  /// in [rows, n] -> rows interleaved in pairs [rows / 2, n, 2] (bf16), or copied (float).
  void (*pair_rows)(const T* in, int64_t in_stride, T* out, int64_t rows, int64_t n);
  /// Row sums of a * b: sums[r] = sum_i a[r, i] * b[r, i].
  void (*row_dots)(const T* a, int64_t a_stride, const T* b, int64_t b_stride, float* sums, int64_t rows, int64_t n);
  /// One of the forward, beside what its queries have seen before: scores are f32 and not scaled yet;
  /// writes probs (paired), brings `most` and `sums` up to date, and says by what earlier sums of values shrink; false when
  /// they stay. `most` begins at -1e30, `sums` at 0.
  struct SoftmaxTile {
    const float* scores;
    float *most, *sums, *shrink;  // [queries]
    T* probs;
    TileShape shape;
  };
  bool (*softmax_tile)(const SoftmaxTile& tile);
  /// x [rows, n] *= by [n]; n is a multiple of 16.
  void (*scale_columns)(float* x, const float* by, int64_t rows, int64_t n);
  /// One of the backward: scores and dprobs are f32; writes probs, dscores and dscores paired.
  struct GradientTile {
    const float *scores, *dprobs;
    const float *lse, *dots;  // [queries]
    T *probs, *dscores, *dscores_paired;
    TileShape shape;
  };
  void (*attention_tile)(const GradientTile& tile);
  /// in [n, in_stride] f32 transposed, scaled, to out rows [rows, n].
  void (*store_transposed)(const float* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows, int64_t n);
  void (*store_rows)(const float* in, T* out, int64_t out_stride, int64_t rows, int64_t n);
  void (*widen_rows)(const T* in, int64_t in_stride, float* out, int64_t rows, int64_t n);  // out [rows, n]
  void (*multiply_panel)(const PanelProduct<float, float>& in);                             // the same for every T
  int64_t panel_rows;  // that it takes together, 6 or 8; likewise
  // Of a that is not woven.
  void (*multiply_panel_to)(const PanelProduct<float, T>& in);
  void (*multiply_panel_of)(const PanelProduct<T, float>& in);
};

/// The table for this machine.
template <typename T>
const Table<T>& table();
template <>
const Table<float>& table<float>();
template <>
const Table<Bf16>& table<Bf16>();
template <>
const Table<F16>& table<F16>();

/// The instruction set whose kernels this process runs: "AVX-512", "AVX2" or "SSE4.2"; ATEN_CPU_CAPABILITY limits it as it
/// limits LibTorch.
std::string_view instruction_set();

/// Calls fn(begin, end) for pieces of [0, n) on LibTorch's threads; a piece has at least `grain` elements.
void parallel_rows(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& fn);

}  // namespace lockstep::kernels
