// Products of panels: the innermost loop of packed_product.h and low_rank_product.h. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>

#include "lockstep/tensor/kernels_vector.h"

namespace lockstep::kernels {
namespace {

/// As many sums as registers hold beside what is added to them: enough to begin another while those before are under way.
constexpr int kPanelRows = kRegisters == 1 ? 8 : 6;

[[gnu::always_inline]] inline Wide<float>::Part register_of(const float* from) {
  Wide<float>::Part part;
  __builtin_memcpy(&part, from, sizeof part);
  return part;
}
template <typename T>
[[gnu::always_inline]] inline Wide<float>::Part register_of(const T* from) {
  typename Lanes<kInRegister>::H bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return widened<kInRegister>(T{}, bits);
}

/// Of kRows rows: g++ keeps them in registers only where their loops are unrolled before it looks.
template <int kRows>
using PanelSums = Wide<float>::Part[kRows][kRegisters];

/// sums += a [kRows, depth] * b [depth, kPanelColumns].
template <bool kWoven, int kRows, typename B>
[[gnu::always_inline]] inline void add_products(PanelSums<kRows>& sums, const float* a, int64_t a_step, const B* b,
                                                int64_t b_step, int64_t depth, bool far) {
  using Part = Wide<float>::Part;
  for (int64_t begin = 0; begin < depth; begin += kPanelColumns) {
    if (!kWoven && far) {
      // A processor foresees one stream of memory, and not the next rows of several (Zen 4).
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) __builtin_prefetch(a + (kRows + r) * a_step + begin, 0, 2);
    }
    const int64_t end = begin + kPanelColumns < depth ? begin + kPanelColumns : depth;
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; ++k) {
      Part columns[kRegisters];
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) columns[i] = register_of(b + k * b_step + i * kInRegister);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kRegisters; ++i) sums[r][i] += a[kWoven ? k * kPanelRows + r : r * a_step + k] * columns[i];
      }
    }
  }
}

/// kRows rows of a from `row` on.
template <bool kWoven, int kRows, typename B, typename Out>
[[gnu::always_inline]] inline void multiply_panel_rows(const PanelProduct<B, Out>& in, int64_t row) {
  using Part = Wide<float>::Part;
  // Of 16 bits are results of products with ranks, which are short: they are asked for some panels before.
  constexpr int64_t kOutAhead = sizeof(Out) == 2 ? 5 : 1;
  const float* const a = in.a + row * (kWoven ? in.depth : in.a_step);
  Out* const out = in.out + row * in.out_step;
  PanelSums<kRows> sums;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(out + r * in.out_step + kOutAhead * kPanelColumns - 1, 1);
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = Part{};
  }
  add_products<kWoven, kRows>(sums, a, in.a_step, in.b, in.b_step, in.depth, in.far);
  if (in.ranks > 0) {
    add_products<false, kRows>(sums, in.left + row * in.left_step, in.left_step, in.right, in.right_step, in.ranks,
                               false);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Out* const to = out + r * in.out_step;
    F sum;
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) sum.part[i] = sums[r][i];
    if (in.columns == kPanelColumns) {
      store(to, in.add ? load(to) + sum : sum);
    } else {
      store_part(to, in.add ? load_part(to, in.columns) + sum : sum, in.columns);
    }
  }
}

/// What is left over behind whole pieces of kPanelRows rows: 1 … kPanelRows - 1.
template <bool kWoven, int kRows, typename B, typename Out>
void multiply_panel_rest(const PanelProduct<B, Out>& in, int64_t row) {
  if (in.rows - row == kRows) return multiply_panel_rows<kWoven, kRows>(in, row);
  if constexpr (kRows > 1) multiply_panel_rest<kWoven, kRows - 1>(in, row);
}

template <bool kWoven, typename B, typename Out>
void multiply_panel_as(const PanelProduct<B, Out>& in) {
  int64_t row = 0;
  for (; row + kPanelRows <= in.rows; row += kPanelRows) multiply_panel_rows<kWoven, kPanelRows>(in, row);
  if (row < in.rows) multiply_panel_rest<kWoven, kPanelRows - 1>(in, row);
}

inline void multiply_panel(const PanelProduct<float, float>& in) {
  if (in.a_step == 0) return multiply_panel_as<true>(in);
  multiply_panel_as<false>(in);
}

}  // namespace
}  // namespace lockstep::kernels
