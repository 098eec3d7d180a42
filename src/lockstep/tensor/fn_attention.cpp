// B batch, N query heads, K kv heads, T queries, S keys, H head size.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "lockstep/tensor/attention_cpu.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"

namespace lockstep::fn {
namespace {

/// LibTorch's flash forward with our backward.
class CpuAttention final : public Function<CpuAttention> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["causal"] = causal;
    return out;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor grad = grads[0].stride(3) == 1 ? grads[0] : grads[0].contiguous();
    const auto made = attention_backward_cpu(
        grad, {saved[0], saved[1], saved[2], saved[3], saved[4], ctx->saved_data["causal"].toBool()});
    return {made[0], made[1], made[2], Tensor()};
  }
};

Tensor repeat_heads(const Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  const int64_t copies = heads / x.size(1);
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), copies, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

/// Rows that may look nowhere look everywhere instead, and their result is cleared: no NaN, forward or backward.
Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask_B1TS) {
  const Tensor blind_B1T1 = mask_B1TS.any(-1, /*keepdim=*/true).logical_not();
  const Tensor out = at::scaled_dot_product_attention(q, k, v, mask_B1TS.logical_or(blind_B1T1));
  return out.masked_fill(blind_B1T1, 0.0);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const int64_t queries = q.size(2), keys = k.size(2);
  const bool causal = options.causal && queries > 1;
  const bool triangle = causal && queries == keys;  // what the kernels call causal
  if (options.mask == nullptr && (triangle || !causal)) {
    if (!q.is_cpu()) return at::scaled_dot_product_attention(q, k, v, {}, 0.0, triangle, {}, k.size(1) != q.size(1));
    const Tensor k_BNSH = repeat_heads(k, q.size(1)), v_BNSH = repeat_heads(v, q.size(1));
    if (q.requires_grad() && has_attention_backward(q)) return CpuAttention::apply(q, k_BNSH, v_BNSH, triangle);
    return at::scaled_dot_product_attention(q, k_BNSH, v_BNSH, {}, 0.0, triangle);
  }
  Tensor mask;
  if (causal) {
    mask = at::ones({1, 1, queries, keys}, q.options().dtype(at::kBool)).tril(keys - queries);
    if (options.mask != nullptr) mask = mask.logical_and(*options.mask);
  } else {
    mask = *options.mask;
  }
  return masked_attention(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), mask);
}

Tensor constant_key_bias(const Tensor& qkv_bias) {
  const auto thirds = qkv_bias.chunk(3);
  return at::cat({thirds[0], thirds[1].detach(), thirds[2]});
}

}  // namespace lockstep::fn
