// The kernels of kernels_pairs.h: CMakeLists gives this file its flags.
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
  for (int r = 0; r < kRows; ++r) sums[r] = in.add ? _mm512_loadu_ps(out + r * in.out_step) : _mm512_setzero_ps();
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

void multiply_pairs(const PairPanel& in) {
  int64_t row = 0;
  for (; row + kRowsAtOnce <= in.rows; row += kRowsAtOnce) multiply_pair_rows<kRowsAtOnce>(in, row);
  if (row < in.rows) multiply_rest<kRowsAtOnce - 1>(in, row);
}

// g++ 12 takes what a masked intrinsic leaves alone for uninitialised: all are of the kind that has zeros there.
constexpr __mmask32 kAll32 = 0xFFFFFFFFU;
constexpr __mmask16 kAll16 = 0xFFFFU;

__mmask32 first_of_32(int64_t n) { return n >= 32 ? kAll32 : (1U << n) - 1U; }
__mmask16 first_of_16(int64_t n) { return n >= 16 ? kAll16 : static_cast<__mmask16>((1U << n) - 1U); }

[[gnu::always_inline]] inline __m512 shuffled(__m512 a, __m512 b, bool upper) {
  return upper ? _mm512_maskz_unpackhi_ps(kAll16, a, b) : _mm512_maskz_unpacklo_ps(kAll16, a, b);
}

/// The sum of the lanes of each of sixteen registers. Lanes are added in a fixed tree.
[[gnu::always_inline]] inline __m512 sums_of_lanes(const __m512 (&of)[16]) {
  __m512 halves[8], quarters[4], eighths[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // of two registers, two lanes each: a a' b b' of the pairs
    halves[i] = shuffled(of[2 * i], of[2 * i + 1], false) + shuffled(of[2 * i], of[2 * i + 1], true);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // lane l of each 128 bits: register 4 i + l
    const auto a = (__m512d)halves[2 * i], b = (__m512d)halves[2 * i + 1];
    quarters[i] = (__m512)_mm512_maskz_unpacklo_pd(0xFF, a, b) + (__m512)_mm512_maskz_unpackhi_pd(0xFF, a, b);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = quarters[2 * i], b = quarters[2 * i + 1];
    eighths[i] = _mm512_maskz_shuffle_f32x4(kAll16, a, b, 0x88) + _mm512_maskz_shuffle_f32x4(kAll16, a, b, 0xDD);
  }
  return _mm512_maskz_shuffle_f32x4(kAll16, eighths[0], eighths[1], 0x88) +
         _mm512_maskz_shuffle_f32x4(kAll16, eighths[0], eighths[1], 0xDD);
}

/// Sixteen rows of x with each row of a.
void to_ranks(const PairDots& in) {
  constexpr int kRows = 16;
  constexpr int64_t kTogether = 32;
  const auto pairs_of = [](const Bf16* from, __mmask32 which) __attribute__((always_inline)) {
    return (__m512bh)_mm512_maskz_loadu_epi16(which, from);
  };
  for (int64_t row = 0; row < in.rows; row += kRows) {
    const int64_t n = in.rows - row < kRows ? in.rows - row : kRows;
    const Bf16* rows[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      rows[r] = in.x + (row + (r < n ? r : n - 1)) * in.x_step;
      // The next rows are other streams of memory: one is foreseen, and not sixteen (Zen 4).
      for (int64_t i = 0; i < in.depth && row + r + kRows < in.rows; i += kTogether) {
        __builtin_prefetch(rows[r] + kRows * in.x_step + i, 0, 2);
      }
    }
    for (int64_t rank = 0; rank < in.ranks; ++rank) {
      const Bf16* const a = in.a + rank * in.a_step;
      __m512 sums[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_ps();
      for (int64_t i = 0; i < in.depth; i += kTogether) {
        const __mmask32 which = first_of_32(in.depth - i);
        const __m512bh mine = pairs_of(a + i, which);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sums[r] = _mm512_dpbf16_ps(sums[r], mine, pairs_of(rows[r] + i, which));
      }
      const __m512 found = sums_of_lanes(sums) * in.scale;
      const auto rounded = (__m256i)_mm512_maskz_cvtneps_pbh(kAll16, found);
      _mm256_mask_storeu_epi16(in.out + rank * in.out_step + row, first_of_16(n), rounded);
    }
  }
}

/// Register i of 0 … 31: where element i of kWordColumns stands when even columns come before odd ones.
__m512i interleaving() {
  alignas(64) uint16_t from[kWordColumns];
  for (int64_t i = 0; i < kWordColumns; ++i) from[i] = static_cast<uint16_t>(i / 2 + (i % 2) * kWordColumns / 2);
  return _mm512_load_si512(from);
}

/// kRows rows of y from `row` on, kWordColumns columns from `column` on, of which `which` are there.
template <int kRows>
[[gnu::always_inline]] inline void from_ranks_at(const PairRanks& in, int64_t row, int64_t column, __mmask32 which,
                                                 __m512i interleaved) {
  constexpr int64_t kAhead = 4 * kWordColumns;
  const uint32_t* const b = in.b + column * in.pairs;
  Bf16* const y = in.y + row * in.y_step + column;
  __m512 even[kRows], odd[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(y + r * in.y_step + kAhead, 1);
    even[r] = odd[r] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < in.pairs; ++p) {
    const auto b_even = (__m512bh)_mm512_loadu_si512(b + p * kWordColumns);
    const auto b_odd = (__m512bh)_mm512_loadu_si512(b + p * kWordColumns + kWordColumns / 2);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto mine = (__m512bh)_mm512_set1_epi32(static_cast<int>(in.h[(row + r) * in.pairs + p]));
      even[r] = _mm512_dpbf16_ps(even[r], mine, b_even);
      odd[r] = _mm512_dpbf16_ps(odd[r], mine, b_odd);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    Bf16* const to = y + r * in.y_step;
    __m512 sum_even = even[r] * in.scale, sum_odd = odd[r] * in.scale;
    if (in.add) {
      const __m512i held = _mm512_maskz_loadu_epi16(which, to);
      sum_even += (__m512)_mm512_maskz_slli_epi32(kAll16, held, 16);
      sum_odd += (__m512)(held & _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
    }
    const auto rounded = (__m512i)_mm512_maskz_cvtne2ps_pbh(kAll32, sum_odd, sum_even);
    _mm512_mask_storeu_epi16(to, which, _mm512_maskz_permutexvar_epi16(kAll32, interleaved, rounded));
  }
}

template <int kRows>
void from_ranks_rows(const PairRanks& in, int64_t row, __m512i interleaved) {
  for (int64_t column = 0; column < in.columns; column += kWordColumns) {
    from_ranks_at<kRows>(in, row, column, first_of_32(in.columns - column), interleaved);
  }
}

void from_ranks(const PairRanks& in) {
  const __m512i interleaved = interleaving();
  int64_t row = 0;
  for (; row + kRowsAtOnce <= in.rows; row += kRowsAtOnce) from_ranks_rows<kRowsAtOnce>(in, row, interleaved);
  for (; row < in.rows; ++row) from_ranks_rows<1>(in, row, interleaved);
}

/// kRanks of the ranks, from `rank` on.
template <int kRanks>
void over_rows_of(const PairRows& in, int64_t rank) {
  constexpr int64_t kAhead = 16;  // rows that lie far apart
  const __mmask32 which = first_of_32(in.columns);
  const Bf16* const h = in.h + rank * in.h_step;
  __m512 lower[kRanks], upper[kRanks];
#pragma GCC unroll 8
  for (int r = 0; r < kRanks; ++r) lower[r] = upper[r] = _mm512_setzero_ps();
  for (int64_t row = 0; row < in.rows; row += 2) {
    const Bf16* const g = in.g + row * in.g_step;
    __builtin_prefetch(g + kAhead * in.g_step);
    __builtin_prefetch(g + (kAhead + 1) * in.g_step);
    const __m512i first = _mm512_maskz_loadu_epi16(which, g);
    const __m512i second = _mm512_maskz_loadu_epi16(row + 1 < in.rows ? which : 0, g + in.g_step);
    const auto low = (__m512bh)_mm512_maskz_unpacklo_epi16(kAll32, first, second);
    const auto high = (__m512bh)_mm512_maskz_unpackhi_epi16(kAll32, first, second);
#pragma GCC unroll 8
    for (int r = 0; r < kRanks; ++r) {
      int word;
      __builtin_memcpy(&word, h + r * in.h_step + row, sizeof word);
      const auto mine = (__m512bh)_mm512_set1_epi32(word);
      lower[r] = _mm512_dpbf16_ps(lower[r], mine, low);
      upper[r] = _mm512_dpbf16_ps(upper[r], mine, high);
    }
  }
  // Unpacking goes by 128 bits: of each, `lower` has columns 0 to 3, `upper` 4 to 7.
  const __m512i front = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i back = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 8
  for (int r = 0; r < kRanks; ++r) {
    float* const out = in.out + (rank + r) * in.out_step;
    const __m512 l = lower[r] * in.scale, u = upper[r] * in.scale;
    _mm512_mask_storeu_ps(out, first_of_16(in.columns), _mm512_maskz_permutex2var_ps(kAll16, l, front, u));
    if (in.columns <= 16) continue;
    _mm512_mask_storeu_ps(out + 16, first_of_16(in.columns - 16), _mm512_maskz_permutex2var_ps(kAll16, l, back, u));
  }
}

void over_rows(const PairRows& in) {
  int64_t rank = 0;
  for (; rank + 8 <= in.ranks; rank += 8) over_rows_of<8>(in, rank);
  for (; rank + 4 <= in.ranks; rank += 4) over_rows_of<4>(in, rank);
  for (; rank < in.ranks; ++rank) over_rows_of<1>(in, rank);
}

}  // namespace

const PairTable& pair_table_v4() {
  static const PairTable table{
      .multiply_panel = multiply_pairs, .to_ranks = to_ranks, .from_ranks = from_ranks, .over_rows = over_rows};
  return table;
}

}  // namespace lockstep::kernels
