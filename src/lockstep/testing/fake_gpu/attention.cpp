// Attention of the fake GPUs: LibTorch's flash attention for the CPU, by the door that is kept for devices that have their own.
#include <optional>

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "lockstep/testing/fake_gpu/ops.h"

namespace lockstep::fake_gpu {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

// NOLINTBEGIN(performance-unnecessary-value-param): LibTorch's signatures

/// Like a GPU's flash attention, it keeps one number a query; what that cannot do is done by LibTorch's ops one by one.
int64_t choose_attention(const Tensor& q, const Tensor& k, const Tensor&, const std::optional<Tensor>& mask, double,
                         bool, std::optional<double>, bool) {
  const bool flash = q.size(1) == k.size(1) && !(mask && mask->requires_grad());
  return static_cast<int64_t>(flash ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

/// (q, k, v, bias, dropout, causal, debug, scale) -> (out, log of sums, and seven things that the CPU's kernel has not)
void attention(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  constexpr size_t kArguments = 8;
  const Stack given = torch::jit::pop(*stack, kArguments);
  const int64_t queries = given[0].toTensor().size(2), keys = given[1].toTensor().size(2);
  torch::jit::push(*stack, given[0], given[1], given[2], given[4], given[5], given[3], given[7]);
  launch_as("aten::_scaled_dot_product_flash_attention_for_cpu", "", *stack);
  torch::jit::push(*stack, Tensor(), Tensor(), queries, keys, Tensor(), Tensor(), Tensor());
}

/// (grad, q, k, v, bias, mask, out, sums, 2 of lengths, 2 longest, dropout, causal, 2 of dropout, scale) -> 4 gradients
void attention_backward(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  constexpr size_t kArguments = 17;
  const Stack given = torch::jit::pop(*stack, kArguments);
  const IValue mask = given[4].toTensor().defined() ? given[4] : IValue();
  torch::jit::push(*stack, given[0], given[1], given[2], given[3], given[6], given[7], given[12], given[13], mask,
                   given[16]);
  launch_as("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "", *stack);
  torch::jit::push(*stack, Tensor());
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
}

}  // namespace lockstep::fake_gpu
