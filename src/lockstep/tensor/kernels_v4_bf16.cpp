// Products of pairs of bfloat16 (AVX512_BF16): CMakeLists gives this file its flags.
#include <immintrin.h>

#include "lockstep/tensor/kernels_tables.h"

namespace lockstep::kernels {
namespace {

constexpr int kRowsAtOnce = 8;
constexpr int64_t kPairsOfLine = 16;

template <int kRows>
[[gnu::always_inline]] inline void add_pairs(const PairPanel& in, const Bf16* w, int64_t pair, __m512 (&sums)[kRows]) {
  const auto theirs = (__m512bh)_mm512_loadu_si512(in.x + pair * kPanelColumns * 2);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    int mine;
    __builtin_memcpy(&mine, w + r * in.w_step + pair * 2, sizeof mine);
    sums[r] = _mm512_dpbf16_ps(sums[r], (__m512bh)_mm512_set1_epi32(mine), theirs);
  }
}

template <int kRows>
void multiply_pair_rows(const PairPanel& in, int64_t row) {
  const Bf16* const w = in.w + row * in.w_step;
  float* const out = in.out + row * in.out_step;
  __m512 sums[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_loadu_ps(out + r * in.out_step);
  int64_t pair = 0;
  for (; pair + kPairsOfLine <= in.pairs; pair += kPairsOfLine) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(w + (kRows + r) * in.w_step + pair * 2, 0, 2);
    for (int64_t i = 0; i < kPairsOfLine; ++i) add_pairs<kRows>(in, w, pair + i, sums);
  }
  for (; pair < in.pairs; ++pair) add_pairs<kRows>(in, w, pair, sums);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * in.out_step, sums[r]);
}

template <int kRows>
void multiply_rest(const PairPanel& in, int64_t row) {
  if (in.rows - row == kRows) return multiply_pair_rows<kRows>(in, row);
  if constexpr (kRows > 1) multiply_rest<kRows - 1>(in, row);
}

}  // namespace

void multiply_pairs_v4(const PairPanel& in) {
  int64_t row = 0;
  for (; row + kRowsAtOnce <= in.rows; row += kRowsAtOnce) multiply_pair_rows<kRowsAtOnce>(in, row);
  if (row < in.rows) multiply_rest<kRowsAtOnce - 1>(in, row);
}

}  // namespace lockstep::kernels
