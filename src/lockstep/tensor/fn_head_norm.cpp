// The norm of each query and key head, within a fused projection.
// R tokens, W width of the projection, N query heads, K kv heads, H head size.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"

namespace lockstep::fn {
namespace {

/// Gradients of the weights are summed over pieces of this many tokens, and the pieces in order: the same bits on any
/// number of threads.
constexpr int64_t kTokensAPiece = 64;

class NormHeads final : public Function<NormHeads> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& qkv_RW, const Tensor& wq_H, const Tensor& wk_H,
                        int64_t heads, int64_t kv_heads, double eps) {
    const int64_t dim = wq_H.size(0), width = (heads + 2 * kv_heads) * dim, rows = qkv_RW.numel() / width;
    Tensor out_RW = at::empty_like(qkv_RW);
    Tensor rstd_RN = at::empty({rows, heads + kv_heads}, qkv_RW.options().dtype(at::kFloat));
    with_element(qkv_RW, [&]<typename T>() {
      const T *in = read_of<T>(qkv_RW), *wq = read_of<T>(wq_H), *wk = read_of<T>(wk_H);
      T* out = write_of<T>(out_RW);
      auto* rstd = write_of<float>(rstd_RN);
      kernels::parallel_rows(rows, grain_of(width), [&](int64_t begin, int64_t end) {
        const auto norm = kernels::table<T>().rms_norm;
        const auto small = static_cast<float>(eps);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t q = r * width, k = q + heads * dim, v = k + kv_heads * dim;
          float* const rstd_of_row = rstd + r * (heads + kv_heads);
          norm(in + q, wq, out + q, rstd_of_row, heads, dim, small);
          norm(in + k, wk, out + k, rstd_of_row + heads, kv_heads, dim, small);
          std::copy_n(in + v, kv_heads * dim, out + v);
        }
      });
    });
    ctx->save_for_backward({qkv_RW, wq_H, wk_H, rstd_RN});
    ctx->saved_data["heads"] = heads;
    return out_RW;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &qkv_RW = saved[0], &wq_H = saved[1], &wk_H = saved[2], &rstd_RN = saved[3];
    const Tensor g_RW = grads[0].contiguous();
    const int64_t dim = wq_H.size(0), width = qkv_RW.size(-1), rows = qkv_RW.numel() / width;
    const int64_t heads = ctx->saved_data["heads"].toInt(), kv_heads = rstd_RN.size(1) - heads;
    const int64_t pieces = (rows + kTokensAPiece - 1) / kTokensAPiece;
    Tensor dx_RW = at::empty_like(qkv_RW);
    Tensor dw_2PH = at::zeros({2, pieces, dim}, qkv_RW.options().dtype(at::kFloat));
    with_element(qkv_RW, [&]<typename T>() {
      const T *g = read_of<T>(g_RW), *x = read_of<T>(qkv_RW), *wq = read_of<T>(wq_H), *wk = read_of<T>(wk_H);
      const auto* rstd = read_of<float>(rstd_RN);
      T* dx = write_of<T>(dx_RW);
      auto* dw = write_of<float>(dw_2PH);
      kernels::parallel_rows(pieces, 1, [&](int64_t begin, int64_t end) {
        const auto back = kernels::table<T>().rms_norm_backward;
        for (int64_t r = begin * kTokensAPiece; r < std::min(rows, end * kTokensAPiece); ++r) {
          const int64_t q = r * width, k = q + heads * dim, v = k + kv_heads * dim, piece = r / kTokensAPiece;
          const float* const rstd_of_row = rstd + r * (heads + kv_heads);
          back(g + q, x + q, wq, rstd_of_row, dx + q, dw + piece * dim, heads, dim);
          back(g + k, x + k, wk, rstd_of_row + heads, dx + k, dw + (pieces + piece) * dim, kv_heads, dim);
          std::copy_n(g + v, kv_heads * dim, dx + v);
        }
      });
    });
    const Tensor dw_2H = dw_2PH.sum(1).to(wq_H.scalar_type());
    return {dx_RW, dw_2H.select(0, 0), dw_2H.select(0, 1), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor norm_heads(const Tensor& qkv, HeadCounts counts, const HeadNorms& norms) {
  const bool alike = norms.q.scalar_type() == qkv.scalar_type() && norms.k.scalar_type() == qkv.scalar_type();
  if (has_kernels(qkv) && alike) {
    return NormHeads::apply(qkv.contiguous(), norms.q, norms.k, counts.heads, counts.kv_heads, norms.eps);
  }
  const int64_t q_width = counts.heads * counts.head_dim, kv_width = counts.kv_heads * counts.head_dim;
  const auto normed = [&](int64_t begin, int64_t width, const Tensor& w) {
    const Tensor heads = qkv.narrow(-1, begin, width).unflatten(-1, {width / counts.head_dim, counts.head_dim});
    return rms_norm(heads, w, norms.eps).flatten(-2);
  };
  return at::cat(
      {normed(0, q_width, norms.q), normed(q_width, kv_width, norms.k), qkv.narrow(-1, q_width + kv_width, kv_width)},
      -1);
}

}  // namespace lockstep::fn
