// Norms over the last dim. R rows, D model.
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"

namespace lockstep::fn {
namespace {

/// The gradient of w is summed over pieces of this many rows, and the pieces in order: the same bits on any thread
/// count.
constexpr int64_t kRowsAPiece = 256;

class RmsNorm final : public Function<RmsNorm> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x_RD, const Tensor& w_D, double eps) {
    const int64_t dim = x_RD.size(-1);
    const int64_t rows = x_RD.numel() / dim;
    Tensor y_RD = at::empty_like(x_RD);
    Tensor rstd_R = at::empty({rows}, x_RD.options().dtype(at::kFloat));
    with_element(x_RD, [&]<typename T>() {
      const T* x = read_of<T>(x_RD);
      const T* w = read_of<T>(w_D);
      T* y = write_of<T>(y_RD);
      auto* rstd = write_of<float>(rstd_R);
      kernels::parallel_rows(rows, grain_of(dim), [&](int64_t begin, int64_t end) {
        kernels::table<T>().rms_norm(x + begin * dim, w, y + begin * dim, rstd + begin, end - begin, dim,
                                     static_cast<float>(eps));
      });
    });
    ctx->save_for_backward({x_RD, w_D, rstd_R});
    return y_RD;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_RD = saved[0], &w_D = saved[1], &rstd_R = saved[2];
    const Tensor g_RD = grads[0].contiguous();
    const int64_t dim = x_RD.size(-1);
    const int64_t rows = x_RD.numel() / dim;
    const int64_t pieces = (rows + kRowsAPiece - 1) / kRowsAPiece;
    Tensor dx_RD = at::empty_like(x_RD);
    Tensor dw_PD = at::zeros({pieces, dim}, x_RD.options().dtype(at::kFloat));
    with_element(x_RD, [&]<typename T>() {
      const T *g = read_of<T>(g_RD), *x = read_of<T>(x_RD), *w = read_of<T>(w_D);
      const auto* rstd = read_of<float>(rstd_R);
      T* dx = write_of<T>(dx_RD);
      auto* dw = write_of<float>(dw_PD);
      kernels::parallel_rows(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t first = piece * kRowsAPiece;
          const int64_t count = std::min(kRowsAPiece, rows - first);
          kernels::table<T>().rms_norm_backward(g + first * dim, x + first * dim, w, rstd + first, dx + first * dim,
                                                dw + piece * dim, count, dim);
        }
      });
    });
    return {dx_RD, dw_PD.sum(0).to(w_D.scalar_type()), Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& w, double eps) {
  if (has_kernels(x) && x.scalar_type() == w.scalar_type()) return RmsNorm::apply(x.contiguous(), w, eps);
  return at::rms_norm(x, w.sizes(), w, eps);
}

std::pair<Tensor, Tensor> add_and_norm(const Tensor& x, const Tensor& y, const Tensor& w, double eps) {
  if (at::GradMode::is_enabled() || !gpu::meet(x, y) || x.scalar_type() != w.scalar_type()) {
    Tensor sum = x.add(y);
    Tensor normed = rms_norm(sum, w, eps);
    return {std::move(sum), std::move(normed)};
  }
  Tensor sum = at::empty(x.sizes(), x.options()), normed = at::empty(x.sizes(), x.options());
  gpu::add_norm(x.contiguous(), y.contiguous(), w.contiguous(), sum, normed, eps);
  return {std::move(sum), std::move(normed)};
}

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return at::layer_norm(x, w.sizes(), w, b, eps);
}

}  // namespace lockstep::fn
