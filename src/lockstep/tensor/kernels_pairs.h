// Kernels of bfloat16 for processors that multiply pairs of them and add both products to a sum of float32 (AVX512_BF16): the
// few rows of decoding, and products with ranks of adapters. Raw pointers, single-threaded; callers split rows.
//
// A word is a pair of neighbours in what is summed over, the first in its lower half.
#pragma once

#include <cstdint>

#include "lockstep/tensor/kernels.h"

namespace lockstep::kernels {

/// out [rows, kPanelColumns] (+)= w [rows, 2 * pairs] * x [pairs, kPanelColumns, 2], summed in float32 pair by pair. w comes from
/// memory.
struct PairPanel {
  const Bf16 *w, *x;
  float* out;
  int64_t w_step, out_step;
  int64_t rows, pairs;
  bool add;
};

/// out [ranks, rows] = scale * a [ranks, depth] * x [rows, depth]^T, rounded once.
struct PairDots {
  const Bf16 *a, *x;
  Bf16* out;
  int64_t a_step, x_step, out_step;
  int64_t ranks, rows, depth;
  float scale;
};

/// y [rows, columns] (+)= scale * h b. h: words [rows, pairs] of ranks; b: words of ranks, [pairs, kWordColumns] of each
/// kWordColumns columns one behind the other, in each the even columns before the odd ones; zeros behind the last column.
inline constexpr int64_t kWordColumns = 32;
struct PairRanks {
  const uint32_t *h, *b;
  Bf16* y;
  int64_t y_step;
  int64_t rows, columns, pairs;
  float scale;
  bool add;
};

/// out [ranks, columns <= kWordColumns] = scale * h [ranks, rows] * g [rows, columns]. Where rows are odd in number, a zero stands
/// behind each row of h.
struct PairRows {
  const Bf16 *h, *g;
  float* out;
  int64_t h_step, g_step, out_step;
  int64_t ranks, rows, columns;
  float scale;
};

struct PairTable {
  void (*multiply_panel)(const PairPanel& in);
  void (*to_ranks)(const PairDots& in);
  void (*from_ranks)(const PairRanks& in);
  void (*over_rows)(const PairRows& in);
};
/// Null where the processor has no instructions for it, or ATEN_CPU_CAPABILITY takes them away.
const PairTable* pair_table();

}  // namespace lockstep::kernels
