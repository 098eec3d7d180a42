// Gates and activations. R rows, F mlp.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/threshold.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/activations.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"

namespace lockstep::fn {
namespace {

class Swiglu final : public Function<Swiglu> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& gate_up_R2F) {
    const int64_t dim = gate_up_R2F.size(-1) / 2;
    auto shape = gate_up_R2F.sizes().vec();
    shape.back() = dim;
    Tensor y_RF = at::empty(shape, gate_up_R2F.options());
    if (gpu::has_kernels(y_RF)) gpu::swiglu(gate_up_R2F, y_RF);
    with_element(gate_up_R2F, [&]<typename T>() {
      const T* in = read_of<T>(gate_up_R2F);
      T* y = write_of<T>(y_RF);
      kernels::parallel_rows(y_RF.numel() / dim, grain_of(dim), [&](int64_t begin, int64_t end) {
        kernels::table<T>().swiglu(in + begin * 2 * dim, y + begin * dim, end - begin, dim);
      });
    });
    ctx->save_for_backward({gate_up_R2F});
    return y_RF;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const Tensor gate_up_R2F = ctx->get_saved_variables()[0];
    const Tensor g_RF = grads[0].contiguous();
    const int64_t dim = g_RF.size(-1);
    Tensor d_R2F = at::empty_like(gate_up_R2F);
    if (gpu::has_kernels(g_RF)) gpu::swiglu_backward(g_RF, gate_up_R2F, d_R2F);
    with_element(gate_up_R2F, [&]<typename T>() {
      const T *g = read_of<T>(g_RF), *in = read_of<T>(gate_up_R2F);
      T* d = write_of<T>(d_R2F);
      kernels::parallel_rows(g_RF.numel() / dim, grain_of(dim), [&](int64_t begin, int64_t end) {
        kernels::table<T>().swiglu_backward(g + begin * dim, in + begin * 2 * dim, d + begin * 2 * dim, end - begin,
                                            dim);
      });
    });
    return {d_R2F};
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate_up) {
  if (has_kernels(gate_up) || gpu::has_kernels(gate_up)) return Swiglu::apply(gate_up.contiguous());
  const int64_t dim = gate_up.size(-1) / 2;
  return at::silu(gate_up.narrow(-1, 0, dim)).mul(gate_up.narrow(-1, dim, dim));
}

Tensor activation(std::string_view name, const Tensor& x) {
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return at::gelu(x, "tanh");
  if (name == "quick_gelu") return x.mul(x.mul(1.702).sigmoid());
  if (name == "silu" || name == "swish") return at::silu(x);
  if (name == "relu") return at::threshold(x, 0, 0);  // relu itself cannot be rehearsed
  throw checkpoint_error(fmt::format("activation \"{}\": expected one of {}", name, fmt::join(kActivationNames, ", ")));
}

}  // namespace lockstep::fn
