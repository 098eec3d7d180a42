// R rows, I inputs, O outputs, r ranks.
#include "lockstep/tensor/low_rank_product.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/low_rank_pairs.h"
#include "lockstep/tensor/packed_product.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

using kernels::kPanelColumns;

/// With more of them LibTorch is as quick, where the processor multiplies 16-bit numbers.
constexpr int64_t kFewRanks = 32;
constexpr int64_t kRowsOfTask = 48;  // a multiple of what every instruction set takes together

bool has_kernel(const Tensor& wide, int64_t ranks) {
  return wide.scalar_type() != at::kFloat && has_kernels(wide) && wide.stride(1) == 1 &&
         (ranks <= kFewRanks || widens(wide));
}

Tensor packed(const Tensor& a, const Tensor& b) {
  const Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_packed(out, a, b, {});
  return out;
}

float number_of(float value) { return value; }
float number_of(kernels::Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
float number_of(kernels::F16 value) { return at::Half(value.bits, at::Half::from_bits()); }

/// scale * m in float32, zeros behind, as many as rows and columns are to be multiples of.
Tensor widened(const Tensor& m, int64_t rows, int64_t columns, double scale) {
  const Tensor wide = at::empty({up_to(m.size(0), rows), up_to(m.size(1), columns)}, m.options().dtype(at::kFloat));
  const bool padded = wide.numel() > m.numel();
  if (wide.is_meta()) return wide;
  if (padded) std::fill_n(write_of<float>(wide), wide.numel(), 0.0F);
  copy_scaled(padded ? wide.narrow(0, 0, m.size(0)).narrow(1, 0, m.size(1)) : wide, m, scale);
  return wide;
}

/// x a^T into h: what LibTorch, or packed_product.h, makes of them.
void to_ranks_by_library(const Tensor& h_Rr, const Tensor& x_RI, const Tensor& a_Ir, double scale) {
  if (packs_narrow_product(x_RI, {x_RI.size(0), x_RI.size(1), a_Ir.size(1)}) && h_Rr.stride(1) == 1) {
    multiply_packed(h_Rr, x_RI, a_Ir, {});
    if (scale != 1) h_Rr.mul_(scale);
  } else if (widens(x_RI)) {
    h_Rr.copy_(product(x_RI, a_Ir).mul_(scale));
  } else {
    Tensor out = h_Rr;
    at::addmm_out(out, out, x_RI, a_Ir, /*beta=*/0, scale);
  }
}

void from_ranks_by_library(const Tensor& y_RO, const Tensor& h_Rr, const Tensor& b_rO, double scale, bool add) {
  Tensor y = y_RO;
  if (packs_narrow_product(y, {h_Rr.size(0), h_Rr.size(1), b_rO.size(1)})) {
    const Tensor h = scale == 1 ? h_Rr : h_Rr.mul(scale);
    add ? add_packed(y, h, b_rO) : multiply_packed(y, h, b_rO, {});
  } else if (widens(y)) {
    const Tensor made = product(h_Rr, b_rO).mul_(scale);
    add ? y.add_(made) : y.copy_(made);
  } else {
    at::addmm_out(y, y, h_Rr, b_rO, /*beta=*/add ? 1 : 0, scale);
  }
}

/// Into float32 whose rows are contiguous.
void over_rows_by_panels(const Tensor& out_rO, const Tensor& h_rR, const Tensor& g_RO, double scale) {
  const int64_t R = g_RO.size(0), O = g_RO.size(1), ranks = h_rR.size(0);
  const Tensor h = widened(h_rR, 1, 1, scale);
  const int64_t panels = up_to(O, kPanelColumns) / kPanelColumns, rest = O % kPanelColumns;
  const Tensor last = rest == 0 ? Tensor() : at::zeros({R, kPanelColumns}, g_RO.options());  // a panel is read whole
  if (rest != 0) last.narrow(1, 0, rest).copy_(g_RO.narrow(1, O - rest, rest));
  with_element(g_RO, [&]<typename T>() {
    float* to = write_of<float>(out_rO);
    kernels::parallel_rows(panels, grain_of(R * ranks), [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < R; row += kernels::kPanelDepth) {
        for (int64_t panel = begin; panel < end; ++panel) {
          const int64_t column = panel * kPanelColumns;
          const bool stands = column + kPanelColumns <= O;
          const int64_t b_step = stands ? g_RO.stride(0) : kPanelColumns;
          kernels::table<T>().multiply_panel_of(
              {.a = read_of<float>(h) + row,
               .b = (stands ? read_of<T>(g_RO) + column : read_of<T>(last)) + row * b_step,
               .out = to + column,
               .a_step = R,
               .b_step = b_step,
               .out_step = out_rO.stride(0),
               .rows = ranks,
               .columns = std::min(kPanelColumns, O - column),
               .depth = std::min(kernels::kPanelDepth, R - row),
               .add = row > 0});
        }
      }
    });
  });
}

}  // namespace

void copy_scaled(const Tensor& to, const Tensor& from, double scale) {
  const auto by = static_cast<float>(scale);
  with_element(from, [&]<typename T>() {
    const T* const in = read_of<T>(from);
    float* const out = write_of<float>(to);
    for (int64_t r = 0; r < to.size(0); ++r) {
      for (int64_t c = 0; c < to.size(1); ++c) {
        out[r * to.stride(0) + c * to.stride(1)] = number_of(in[r * from.stride(0) + c * from.stride(1)]) * by;
      }
    }
  });
}

Tensor empty_ranks(const Tensor& x_RI, int64_t ranks) {
  const int64_t R = x_RI.size(0);
  return has_kernel(x_RI, ranks) ? at::empty({ranks, R}, x_RI.options()) : at::empty({R, ranks}, x_RI.options()).t();
}

void to_ranks(const Tensor& h_rR, const Tensor& x_RI, const Tensor& a_rI, double scale) {
  const int64_t R = x_RI.size(0), I = x_RI.size(1), ranks = a_rI.size(0);
  if (!has_kernel(x_RI, ranks) || h_rR.stride(1) != 1) return to_ranks_by_library(h_rR.t(), x_RI, a_rI.t(), scale);
  if (multiplies_pairs(x_RI)) return to_ranks_by_pairs(h_rR, x_RI, a_rI, scale);
  const Tensor a = widened(a_rI, kernels::kRowsTogether, 1, scale);
  with_element(x_RI, [&]<typename T>() {
    const T* x = read_of<T>(x_RI);
    T* to = write_of<T>(h_rR);
    kernels::parallel_rows(R, grain_of(I), [&](int64_t begin, int64_t end) {
      kernels::table<T>().multiply_rows({.x = read_of<float>(a),
                                         .w = x + begin * x_RI.stride(0),
                                         .bias = nullptr,
                                         .y = to + begin,
                                         .w_stride = x_RI.stride(0),
                                         .y_stride = h_rR.stride(0),
                                         .rows = ranks,
                                         .outputs = end - begin,
                                         .dim = I});
    });
  });
}

void from_ranks(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, double scale, bool add) {
  const int64_t R = y_RO.size(0), O = y_RO.size(1), ranks = h_rR.size(0);
  if (!has_kernel(y_RO, ranks)) return from_ranks_by_library(y_RO, h_rR.t(), b_rO, scale, add);
  if (multiplies_pairs(y_RO)) return from_ranks_by_pairs(y_RO, h_rR, b_rO, scale, add);
  const Tensor h = widened(h_rR.t(), 1, 1, scale), b = widened(b_rO, 1, kPanelColumns, 1.0);
  const int64_t panels = b.size(1) / kPanelColumns;
  with_element(y_RO, [&]<typename T>() {
    T* to = write_of<T>(y_RO);
    kernels::parallel_rows(up_to(R, kRowsOfTask) / kRowsOfTask, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * kRowsOfTask; row < std::min(R, end * kRowsOfTask); row += kRowsOfTask) {
        for (int64_t panel = 0; panel < panels; ++panel) {
          const int64_t column = panel * kPanelColumns;
          kernels::table<T>().multiply_panel_to({.a = read_of<float>(h) + row * ranks,
                                                 .b = read_of<float>(b) + column,
                                                 .out = to + row * y_RO.stride(0) + column,
                                                 .a_step = ranks,
                                                 .b_step = b.stride(0),
                                                 .out_step = y_RO.stride(0),
                                                 .rows = std::min(kRowsOfTask, R - row),
                                                 .columns = std::min(kPanelColumns, O - column),
                                                 .depth = ranks,
                                                 .add = add});
        }
      }
    });
  });
}

void over_rows(const Tensor& out_rO, const Tensor& h_rR, const Tensor& g_RO, double scale) {
  const int64_t R = g_RO.size(0), O = g_RO.size(1), ranks = h_rR.size(0);
  if (!has_kernel(g_RO, ranks)) {
    const bool packs = packs_narrow_product(g_RO, {ranks, R, O});
    out_rO.copy_((packs ? packed(h_rR, g_RO) : product(h_rR, g_RO)).mul_(scale));
    return;
  }
  const bool direct = out_rO.scalar_type() == at::kFloat && out_rO.stride(1) == 1;
  const Tensor out = direct ? out_rO : at::empty({ranks, O}, g_RO.options().dtype(at::kFloat));
  (multiplies_pairs(g_RO) ? over_rows_by_pairs : over_rows_by_panels)(out, h_rR, g_RO, scale);
  if (direct) return;
  if (out_rO.scalar_type() != at::kFloat || out.is_meta()) {
    out_rO.copy_(out);
    return;
  }
  copy_scaled(out_rO, out, 1.0);
}

}  // namespace lockstep::fn
