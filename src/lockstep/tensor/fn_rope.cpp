// Rotary positions, and the way between a fused projection and heads.
// B batch, T tokens, N query heads, K kv heads, H head size.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/make.h"

namespace lockstep::fn {
namespace {

constexpr int64_t kMaxHeadDim = 512;  // of the row kernel's buffer

/// Tables of one batch row: [T,H], shared by all rows when the batch dim of the table is 1.
const float* table_of(const Tensor& table_BTH, int64_t batch) {
  return read_of<float>(table_BTH) + (table_BTH.size(0) == 1 ? 0 : batch * table_BTH.size(1) * table_BTH.size(2));
}

class SplitHeads final : public Function<SplitHeads> {
 public:
  static Tensors forward(AutogradContext* ctx, const Tensor& qkv_BTW, const Tensor& cos_BTH, const Tensor& sin_BTH,
                         int64_t heads, int64_t kv_heads, int64_t copies) {
    const int64_t batch = qkv_BTW.size(0), tokens = qkv_BTW.size(1), dim = cos_BTH.size(2);
    const kernels::HeadLayout layout{heads, kv_heads, dim, copies};
    Tensor q = at::empty({batch, tokens, heads, dim}, qkv_BTW.options());
    Tensor k = at::empty({batch, tokens, kv_heads * copies, dim}, qkv_BTW.options());
    Tensor v = at::empty({batch, tokens, kv_heads * copies, dim}, qkv_BTW.options());
    if (gpu::has_kernels(qkv_BTW)) gpu::split_heads(qkv_BTW, cos_BTH, sin_BTH, {q, k, v}, layout);
    with_element(qkv_BTW, [&]<typename T>() {
      for (int64_t b = 0; b < batch; ++b) {
        const T* in = read_of<T>(qkv_BTW) + b * tokens * layout.width();
        const float *cos = table_of(cos_BTH, b), *sin = table_of(sin_BTH, b);
        T* q_out = write_of<T>(q) + b * tokens * heads * dim;
        T* k_out = write_of<T>(k) + b * tokens * kv_heads * copies * dim;
        T* v_out = write_of<T>(v) + b * tokens * kv_heads * copies * dim;
        kernels::parallel_rows(tokens, grain_of(layout.width()), [&](int64_t begin, int64_t end) {
          kernels::table<T>().split_heads(in + begin * layout.width(), cos + begin * dim, sin + begin * dim,
                                          q_out + begin * heads * dim, k_out + begin * kv_heads * copies * dim,
                                          v_out + begin * kv_heads * copies * dim, end - begin, layout);
        });
      }
    });
    ctx->save_for_backward({cos_BTH, sin_BTH});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["kv_heads"] = kv_heads;
    ctx->saved_data["copies"] = copies;
    return {q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)};
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const int64_t heads = ctx->saved_data["heads"].toInt(), kv_heads = ctx->saved_data["kv_heads"].toInt();
    const int64_t copies = ctx->saved_data["copies"].toInt();
    const Tensor &cos_BTH = saved[0], &sin_BTH = saved[1];
    const Tensor dq = grads[0].transpose(1, 2).contiguous();
    const Tensor dk = grads[1].transpose(1, 2).contiguous();
    const Tensor dv = grads[2].transpose(1, 2).contiguous();
    const int64_t batch = dq.size(0), tokens = dq.size(1), dim = dq.size(3);
    const kernels::HeadLayout layout{heads, kv_heads, dim, copies};
    Tensor d_BTW = at::empty({batch, tokens, layout.width()}, dq.options());
    if (gpu::has_kernels(dq)) gpu::join_heads(d_BTW, cos_BTH, sin_BTH, {dq, dk, dv}, layout);
    with_element(dq, [&]<typename T>() {
      for (int64_t b = 0; b < batch; ++b) {
        const float *cos = table_of(cos_BTH, b), *sin = table_of(sin_BTH, b);
        const T* q_in = read_of<T>(dq) + b * tokens * heads * dim;
        const T* k_in = read_of<T>(dk) + b * tokens * kv_heads * copies * dim;
        const T* v_in = read_of<T>(dv) + b * tokens * kv_heads * copies * dim;
        T* out = write_of<T>(d_BTW) + b * tokens * layout.width();
        kernels::parallel_rows(tokens, grain_of(layout.width()), [&](int64_t begin, int64_t end) {
          kernels::table<T>().join_heads(q_in + begin * heads * dim, k_in + begin * kv_heads * copies * dim,
                                         v_in + begin * kv_heads * copies * dim, cos + begin * dim, sin + begin * dim,
                                         out + begin * layout.width(), end - begin, layout);
        });
      }
    });
    return {d_BTW, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::pair<Tensor, Tensor> rope_tables(const Tensor& positions, const Tensor& inverse_frequencies, double scaling,
                                      Dtype dtype) {
  const Tensor angles = positions.to(at::kFloat).unsqueeze(-1).mul(inverse_frequencies);
  const Tensor both = at::cat({angles, angles}, -1);
  return {to_dtype(both.cos().mul(scaling), dtype), to_dtype(both.sin().mul(scaling), dtype)};
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const Tensor cos_BT1H = cos.to(x.scalar_type()).unsqueeze(-2), sin_BT1H = sin.to(x.scalar_type()).unsqueeze(-2);
  const Tensor turned = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x.mul(cos_BT1H).add(turned.mul(sin_BT1H));
}

std::array<Tensor, 3> split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, HeadCounts counts,
                                  bool repeat_kv) {
  check(cos.dim() == 3 && sin.sizes() == cos.sizes(), "split_heads: tables of [B or 1, T, H]");
  const bool on_gpu = gpu::has_kernels(qkv) && counts.head_dim % 2 == 0;
  const bool in_buffer = has_kernels(qkv) && counts.head_dim <= kMaxHeadDim;
  if ((on_gpu || in_buffer) && cos.scalar_type() == at::kFloat) {
    const int64_t copies = repeat_kv && !on_gpu ? counts.heads / counts.kv_heads : 1;  // a GPU's attention shares them
    const auto parts =
        SplitHeads::apply(qkv.contiguous(), cos.contiguous(), sin.contiguous(), counts.heads, counts.kv_heads, copies);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t kv_width = counts.kv_heads * counts.head_dim;
  const int64_t q_width = counts.heads * counts.head_dim;
  const auto heads = [&](int64_t begin, int64_t width) {
    return qkv.narrow(-1, begin, width).unflatten(-1, {width / counts.head_dim, counts.head_dim});
  };
  return {rope(heads(0, q_width), cos, sin).transpose(1, 2), rope(heads(q_width, kv_width), cos, sin).transpose(1, 2),
          heads(q_width + kv_width, kv_width).transpose(1, 2)};
}

Tensor merge_heads(const Tensor& x) { return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)}); }

}  // namespace lockstep::fn
