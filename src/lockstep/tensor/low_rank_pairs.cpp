// R rows, I inputs, O outputs, r ranks. What is narrow is laid out as kernels_pairs.h has it; the other factor is read where it
// stands.
#include "lockstep/tensor/low_rank_pairs.h"

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels_pairs.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

using kernels::Bf16;
using kernels::kWordColumns;

/// m in rows that are contiguous, of an even number of elements.
Tensor in_rows(const Tensor& m) {
  const int64_t rows = m.size(0), columns = m.size(1);
  if (m.stride(1) == 1 && columns % 2 == 0) return m;
  const Tensor out = at::empty({rows, up_to(columns, 2)}, m.options());
  if (out.is_meta()) return out;
  const Bf16* const from = read_of<Bf16>(m);
  Bf16* const to = write_of<Bf16>(out);
  for (int64_t r = 0; r < rows; ++r) {
    Bf16* const row = to + r * out.size(1);
    for (int64_t c = 0; c < columns; ++c) row[c] = from[r * m.stride(0) + c * m.stride(1)];
    if (columns % 2 != 0) row[columns] = {};
  }
  return out;
}

/// The words of each of the columns of m [ranks, columns]: take(column, pair, word).
template <typename Take>
void each_word(const Tensor& m, const Take& take) {
  const Bf16* const from = read_of<Bf16>(m);
  const int64_t ranks = m.size(0), of_rank = m.stride(0), of_column = m.stride(1);
  for (int64_t c = 0; c < m.size(1); ++c) {
    const Bf16* const column = from + c * of_column;
    for (int64_t rank = 0; rank < ranks; rank += 2) {
      const uint32_t upper = rank + 1 < ranks ? column[(rank + 1) * of_rank].bits : 0;
      take(c, rank / 2, column[rank * of_rank].bits | upper << 16);
    }
  }
}

Tensor words_by_row(const Tensor& h_rR, int64_t pairs) {
  const Tensor words = at::empty({h_rR.size(1), pairs}, h_rR.options().dtype(at::kInt));
  if (words.is_meta()) return words;
  auto* const to = write_of<uint32_t>(words);
  each_word(h_rR, [&](int64_t row, int64_t pair, uint32_t word) { to[row * pairs + pair] = word; });
  return words;
}

Tensor words_of_columns(const Tensor& b_rO, int64_t pairs) {
  const int64_t columns = up_to(b_rO.size(1), kWordColumns);
  const Tensor words = at::empty({columns * pairs}, b_rO.options().dtype(at::kInt));
  if (words.is_meta()) return words;
  auto* const to = write_of<uint32_t>(words);
  if (columns > b_rO.size(1)) std::fill_n(to + (columns - kWordColumns) * pairs, kWordColumns * pairs, 0U);
  each_word(b_rO, [&](int64_t column, int64_t pair, uint32_t word) {
    const int64_t inside = column % kWordColumns;
    const int64_t place = inside / 2 + (inside % 2) * (kWordColumns / 2);
    to[(column - inside) * pairs + pair * kWordColumns + place] = word;
  });
  return words;
}

}  // namespace

void to_ranks_by_pairs(const Tensor& h_rR, const Tensor& x_RI, const Tensor& a_rI, double scale) {
  const Tensor a = in_rows(a_rI);
  if (x_RI.is_meta()) return;
  kernels::parallel_rows(x_RI.size(0), grain_of(x_RI.size(1)), [&](int64_t begin, int64_t end) {
    kernels::pair_table()->to_ranks({.a = read_of<Bf16>(a),
                                     .x = read_of<Bf16>(x_RI) + begin * x_RI.stride(0),
                                     .out = write_of<Bf16>(h_rR) + begin,
                                     .a_step = a.stride(0),
                                     .x_step = x_RI.stride(0),
                                     .out_step = h_rR.stride(0),
                                     .ranks = a_rI.size(0),
                                     .rows = end - begin,
                                     .depth = x_RI.size(1),
                                     .scale = static_cast<float>(scale)});
  });
}

void from_ranks_by_pairs(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, double scale, bool add) {
  const int64_t pairs = up_to(h_rR.size(0), 2) / 2;
  const Tensor h = words_by_row(h_rR, pairs), b = words_of_columns(b_rO, pairs);
  if (y_RO.is_meta()) return;
  kernels::parallel_rows(y_RO.size(0), grain_of(y_RO.size(1)), [&](int64_t begin, int64_t end) {
    kernels::pair_table()->from_ranks({.h = read_of<uint32_t>(h) + begin * pairs,
                                       .b = read_of<uint32_t>(b),
                                       .y = write_of<Bf16>(y_RO) + begin * y_RO.stride(0),
                                       .y_step = y_RO.stride(0),
                                       .rows = end - begin,
                                       .columns = y_RO.size(1),
                                       .pairs = pairs,
                                       .scale = static_cast<float>(scale),
                                       .add = add});
  });
}

void over_rows_by_pairs(const Tensor& out_rO, const Tensor& h_rR, const Tensor& g_RO, double scale) {
  const Tensor h = in_rows(h_rR);
  if (g_RO.is_meta()) return;
  const int64_t R = g_RO.size(0), O = g_RO.size(1);
  kernels::parallel_rows(
      up_to(O, kWordColumns) / kWordColumns, grain_of(R * kWordColumns), [&](int64_t begin, int64_t end) {
        for (int64_t column = begin * kWordColumns; column < std::min(O, end * kWordColumns); column += kWordColumns) {
          kernels::pair_table()->over_rows({.h = read_of<Bf16>(h),
                                            .g = read_of<Bf16>(g_RO) + column,
                                            .out = write_of<float>(out_rO) + column,
                                            .h_step = h.stride(0),
                                            .g_step = g_RO.stride(0),
                                            .out_step = out_rO.stride(0),
                                            .ranks = h_rR.size(0),
                                            .rows = R,
                                            .columns = std::min(kWordColumns, O - column),
                                            .scale = static_cast<float>(scale)});
        }
      });
}

}  // namespace lockstep::fn
