// The root mean square norm of the fake GPUs: one op, as CUDA has it, where LibTorch composes it of seven for other devices.
#include <array>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "lockstep/base/error.h"
#include "lockstep/testing/fake_gpu/ops.h"

namespace lockstep::fake_gpu {
namespace {

using at::Tensor;

// NOLINTBEGIN(performance-unnecessary-value-param): LibTorch's signatures

/// x [.., D] -> (y [.., D], 1 / root [.., 1], f32).
std::tuple<Tensor, Tensor> norm(const Tensor& x, c10::IntArrayRef shape, const std::optional<Tensor>& w,
                                std::optional<double> eps) {
  check(shape.size() == 1 && w && eps, "the fake GPU norms over the last dim, with weights");
  const Tensor values = x.to(at::kFloat);
  const Tensor rstd = values.square().mean({-1}, /*keepdim=*/true).add(*eps).rsqrt();
  return {values.mul(rstd).mul(w->to(at::kFloat)).to(x.scalar_type()), rstd};
}

std::tuple<Tensor, Tensor> norm_backward(const Tensor& grad, const Tensor& x, c10::IntArrayRef, const Tensor& rstd,
                                         const std::optional<Tensor>& w, std::array<bool, 2> wanted) {
  const Tensor g = grad.to(at::kFloat), normed = x.to(at::kFloat).mul(rstd);
  const Tensor weighted = g.mul(w->to(at::kFloat));
  const Tensor dx = weighted.sub(normed.mul(weighted.mul(normed).mean({-1}, /*keepdim=*/true))).mul(rstd);
  return {wanted[0] ? dx.to(x.scalar_type()) : Tensor(),
          wanted[1] ? g.mul(normed).reshape({-1, x.size(-1)}).sum(0).to(w->scalar_type()) : Tensor()};
}

// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

void register_norm(torch::Library& aten) {
  // Of these the CPU has no kernels either.
  static torch::Library cpu(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  cpu.impl("_fused_rms_norm", TORCH_FN(norm));
  cpu.impl("_fused_rms_norm_backward", TORCH_FN(norm_backward));
  for (const char* name : {"_fused_rms_norm", "_fused_rms_norm_backward"}) queue_on_cpu(aten, name);
}

}  // namespace lockstep::fake_gpu
