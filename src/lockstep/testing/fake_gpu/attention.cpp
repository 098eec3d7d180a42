// Attention of the fake GPUs: LibTorch's flash attention for the CPU, by the door that is kept for devices that have their own.
#include <limits>
#include <optional>
#include <tuple>

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "lockstep/testing/fake_gpu/ops.h"

namespace lockstep::fake_gpu {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

// NOLINTBEGIN(performance-unnecessary-value-param): LibTorch's signatures

/// Like a GPU's flash attention, it keeps one number a query; what that cannot do is done by LibTorch's ops one by one. In float32 it
/// stands for the kernel that takes no groups of heads.
int64_t choose_attention(const Tensor& q, const Tensor& k, const Tensor&, const std::optional<Tensor>& mask, double,
                         bool, std::optional<double>, bool) {
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  const bool heads = half ? q.size(1) % k.size(1) == 0 : q.size(1) == k.size(1);
  const bool flash = heads && !(mask && mask->requires_grad());
  return static_cast<int64_t>(flash ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

/// Each head of k or v for all of its group, which the CPU's kernel wants and a GPU's reads where it is.
Tensor for_heads(const IValue& x_BKSH, int64_t heads) {
  const Tensor x = x_BKSH.toTensor();
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

/// Back to [B,K,S,H].
IValue of_groups(const IValue& grad_BNSH, int64_t groups) {
  const Tensor grad = grad_BNSH.toTensor();
  return grad.size(1) == groups ? grad : grad.unflatten(1, {groups, -1}).sum(2);
}

/// (q, k, v, bias, dropout, causal, debug, scale) -> (out, log of sums, and seven things that the CPU's kernel has not)
void attention(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  constexpr size_t kArguments = 8;
  const Stack given = torch::jit::pop(*stack, kArguments);
  const int64_t queries = given[0].toTensor().size(2), keys = given[1].toTensor().size(2);
  const int64_t heads = given[0].toTensor().size(1);
  torch::jit::push(*stack, given[0], for_heads(given[1], heads), for_heads(given[2], heads), given[4], given[5],
                   given[3], given[7]);
  launch_as("aten::_scaled_dot_product_flash_attention_for_cpu", "", *stack);
  torch::jit::push(*stack, Tensor(), Tensor(), queries, keys, Tensor(), Tensor(), Tensor());
}

/// (grad, q, k, v, bias, mask, out, sums, 2 of lengths, 2 longest, dropout, causal, 2 of dropout, scale) -> 4 gradients
void attention_backward(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  constexpr size_t kArguments = 17;
  const Stack given = torch::jit::pop(*stack, kArguments);
  const IValue mask = given[4].toTensor().defined() ? given[4] : IValue();
  const int64_t heads = given[1].toTensor().size(1), groups = given[2].toTensor().size(1);
  torch::jit::push(*stack, given[0], given[1], for_heads(given[2], heads), for_heads(given[3], heads), given[6],
                   given[7], given[12], given[13], mask, given[16]);
  launch_as("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "", *stack);
  constexpr size_t kGrads = 3;
  const Stack made = torch::jit::pop(*stack, kGrads);
  torch::jit::push(*stack, made[0], of_groups(made[1], groups), of_groups(made[2], groups), Tensor());
}

/// Rows [begin, end) of x [T,heads,H] as the CPU's kernel wants them: [1,N,rows,H], each head for all of its group.
Tensor row_of(const Tensor& x, int64_t begin, int64_t end, int64_t heads) {
  const Tensor row = x.slice(0, begin, end).transpose(0, 1).unsqueeze(0);
  return row.repeat_interleave(heads / x.size(1), 1).contiguous();
}

/// Visits (begin, end) of every row that has tokens.
template <typename Visit>
void each_row(const std::optional<Tensor>& starts, const Visit& visit) {
  const auto* const start = starts.value().const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < starts->size(0); ++i) {
    if (start[i + 1] > start[i]) visit(start[i], start[i + 1]);
  }
}

/// What rows of so many tokens give LibTorch's kernel for a causal window: a mask; none where there is no window.
struct Sight {
  bool causal;
  std::optional<Tensor> mask;

  Sight(bool is_causal, std::optional<int64_t> back, std::optional<int64_t> forth, int64_t tokens, const Tensor& like)
      : causal(is_causal) {
    if (!back || *back < 0) return;
    TORCH_CHECK(is_causal && forth.value_or(0) == 0, "the fake GPU's windows look back");
    const Tensor seen = at::ones({tokens, tokens}, like.options().dtype(at::kBool)).tril_().triu_(-*back);
    mask = at::zeros({tokens, tokens}, like.options())
               .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
    causal = false;
  }
};

/// Rows of several lengths behind one another, q [T,N,H], k and v [T,K,H]: what CUDA has, computed on the CPU.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rows_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& starts,
    const std::optional<Tensor>&, int64_t, int64_t, double dropout, bool causal, bool, std::optional<double> scale,
    std::optional<int64_t> back, std::optional<int64_t> forth, const std::optional<Tensor>&,
    const std::optional<Tensor>&) {
  const int64_t heads = q.size(1);
  Tensor out = at::zeros(q.sizes(), q.options());
  Tensor sums_NT = at::zeros({heads, q.size(0)}, q.options().dtype(at::kFloat));
  each_row(starts, [&](int64_t begin, int64_t end) {
    const Sight sight(causal, back, forth, end - begin, q);
    const auto [o, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        row_of(q, begin, end, heads), row_of(k, begin, end, heads), row_of(v, begin, end, heads), dropout, sight.causal,
        sight.mask, scale);
    out.slice(0, begin, end).copy_(o.select(0, 0).transpose(0, 1));
    sums_NT.slice(1, begin, end).copy_(sums.select(0, 0));
  });
  const Tensor none = at::empty({0}, q.options().dtype(at::kLong));
  return {out, sums_NT, none, none.clone(), none.clone()};
}

std::tuple<Tensor, Tensor, Tensor> rows_attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                           const Tensor& v, const Tensor& out, const Tensor& sums_NT,
                                                           const Tensor& starts, const Tensor&, int64_t, int64_t,
                                                           double dropout, bool causal, const Tensor&, const Tensor&,
                                                           std::optional<double> scale, std::optional<int64_t> back,
                                                           std::optional<int64_t> forth) {
  const int64_t heads = q.size(1);
  Tensor dq = at::zeros(q.sizes(), q.options());
  Tensor dk = at::zeros(k.sizes(), k.options()), dv = at::zeros(v.sizes(), v.options());
  each_row(starts, [&](int64_t begin, int64_t end) {
    const auto row = [&](const Tensor& x) { return row_of(x, begin, end, heads); };
    const Sight sight(causal, back, forth, end - begin, q);
    const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        row(grad), row(q), row(k), row(v), row(out), sums_NT.slice(1, begin, end).unsqueeze(0).contiguous(), dropout,
        sight.causal, sight.mask, scale);
    const auto put = [&](Tensor& all, const Tensor& one) {
      const Tensor groups = one.select(0, 0).unflatten(0, {all.size(1), -1}).sum(1);
      all.slice(0, begin, end).copy_(groups.transpose(0, 1));
    };
    put(dq, gq);
    put(dk, gk);
    put(dv, gv);
  });
  return {dq, dk, dv};
}

// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

void register_attention(torch::Library& aten) {
  using torch::CppFunction;
  aten.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
  aten.impl("_scaled_dot_product_fused_attention_overrideable", CppFunction::makeFromBoxedFunction<&attention>());
  aten.impl("_scaled_dot_product_fused_attention_overrideable_backward",
            CppFunction::makeFromBoxedFunction<&attention_backward>());
  // The fallback computes with the CPU's kernels: of this one there is none.
  static torch::Library cpu(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  cpu.impl("_flash_attention_forward", TORCH_FN(rows_attention));
  cpu.impl("_flash_attention_backward", TORCH_FN(rows_attention_backward));
}

}  // namespace lockstep::fake_gpu
