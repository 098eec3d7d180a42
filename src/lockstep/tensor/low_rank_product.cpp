// R rows, I inputs, O outputs, r ranks.
#include "lockstep/tensor/low_rank_product.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/fn_common.h"
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

/// m in float32, zeros behind, as many as rows and columns are to be multiples of.
Tensor widened(const Tensor& m, int64_t rows, int64_t columns) {
  const Tensor wide = at::zeros({up_to(m.size(0), rows), up_to(m.size(1), columns)}, m.options().dtype(at::kFloat));
  wide.narrow(0, 0, m.size(0)).narrow(1, 0, m.size(1)).copy_(m);
  return wide;
}

Tensor packed(const Tensor& a, const Tensor& b) {
  const Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_packed(out, a, b, {});
  return out;
}

}  // namespace

Tensor to_ranks(const Tensor& x_RI, const Tensor& a_rI) {
  const int64_t R = x_RI.size(0), I = x_RI.size(1), ranks = a_rI.size(0);
  if (!has_kernel(x_RI, ranks)) {
    const Tensor a_Ir = a_rI.t();
    return (packs_narrow_product(x_RI, {R, I, ranks}) ? packed(x_RI, a_Ir) : product(x_RI, a_Ir)).t();
  }
  const Tensor a = widened(a_rI, kernels::kRowsTogether, 1), h_rR = at::empty({ranks, R}, x_RI.options());
  with_element(x_RI, [&]<typename T>() {
    const T* x = read_of<T>(x_RI);
    T* to = write_of<T>(h_rR);
    kernels::parallel_rows(R, grain_of(I), [&](int64_t begin, int64_t end) {
      kernels::table<T>().multiply_rows({.x = read_of<float>(a),
                                         .w = x + begin * x_RI.stride(0),
                                         .bias = nullptr,
                                         .y = to + begin,
                                         .w_stride = x_RI.stride(0),
                                         .y_stride = R,
                                         .rows = ranks,
                                         .outputs = end - begin,
                                         .dim = I});
    });
  });
  return h_rR;
}

void from_ranks(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, bool add) {
  const int64_t R = y_RO.size(0), O = y_RO.size(1), ranks = h_rR.size(0);
  if (!has_kernel(y_RO, ranks)) {
    const Tensor h_Rr = h_rR.t();
    Tensor y = y_RO;
    if (packs_narrow_product(y_RO, {R, ranks, O})) {
      add ? add_packed(y, h_Rr, b_rO) : multiply_packed(y, h_Rr, b_rO, {});
    } else if (widens(y)) {
      add ? y.add_(product(h_Rr, b_rO)) : y.copy_(product(h_Rr, b_rO));
    } else {
      add ? y.addmm_(h_Rr, b_rO) : at::mm_out(y, h_Rr, b_rO);
    }
    return;
  }
  const Tensor h = widened(h_rR.t(), 1, 1), b = widened(b_rO, 1, kPanelColumns);
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

Tensor over_rows(const Tensor& h_rR, const Tensor& g_RO) {
  const int64_t R = g_RO.size(0), O = g_RO.size(1), ranks = h_rR.size(0);
  if (!has_kernel(g_RO, ranks))
    return packs_narrow_product(g_RO, {ranks, R, O}) ? packed(h_rR, g_RO) : product(h_rR, g_RO);
  const Tensor h = widened(h_rR, 1, 1), out = at::empty({ranks, O}, h.options());
  const int64_t panels = up_to(O, kPanelColumns) / kPanelColumns, rest = O % kPanelColumns;
  const Tensor last = rest == 0 ? Tensor() : at::zeros({R, kPanelColumns}, g_RO.options());  // a panel is read whole
  if (rest != 0) last.narrow(1, 0, rest).copy_(g_RO.narrow(1, O - rest, rest));
  with_element(g_RO, [&]<typename T>() {
    float* to = write_of<float>(out);
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
               .out_step = O,
               .rows = ranks,
               .columns = std::min(kPanelColumns, O - column),
               .depth = std::min(kernels::kPanelDepth, R - row),
               .add = row > 0});
        }
      }
    });
  });
  return out;
}

}  // namespace lockstep::fn
