// Each gives tensors of the shapes that the CPU's op gives, and allocates nothing else that would outlive it.
#include "lockstep/tensor/hollow_ops.h"

#include <array>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "lockstep/tensor/fwd.h"

namespace lockstep {
namespace {

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  auto shape = x.sizes().vec();
  shape[static_cast<size_t>(dim < 0 ? dim + x.dim() : dim)] = index.numel();
  return at::empty(shape, x.options());
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): LibTorch's signature
Tensor embedding_dense_backward(const Tensor& grad, const Tensor&, c10::SymInt rows, c10::SymInt, bool) {
  return at::empty({rows.expect_int(), grad.size(-1)}, grad.options());
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& x, c10::SymIntArrayRef normalized,
                                                     const std::optional<Tensor>&, const std::optional<Tensor>&,
                                                     double) {
  auto rows = x.sizes().vec();
  for (size_t i = rows.size() - normalized.size(); i < rows.size(); ++i) rows[i] = 1;
  const auto statistics = x.options().dtype(at::kFloat);
  return {at::empty_like(x), at::empty(rows, statistics), at::empty(rows, statistics)};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor&, const Tensor& x, c10::SymIntArrayRef,
                                                              const Tensor&, const Tensor&,
                                                              const std::optional<Tensor>& w,
                                                              const std::optional<Tensor>& b,
                                                              std::array<bool, 3> wanted) {
  const auto made = [&](bool want, const Tensor& like) { return want ? at::empty_like(like) : Tensor(); };
  return {made(wanted[0], x), made(wanted[1] && w, w.value_or(x)), made(wanted[2] && b, b.value_or(x))};
}

/// In one op, as CUDA has it, where LibTorch composes it of several that each keep something.
// NOLINTNEXTLINE(performance-unnecessary-value-param): LibTorch's signature
std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& x, c10::IntArrayRef, const std::optional<Tensor>&,
                                          std::optional<double>) {
  auto rows = x.sizes().vec();
  rows.back() = 1;
  return {at::empty_like(x), at::empty(rows, x.options().dtype(at::kFloat))};
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): LibTorch's signature
std::tuple<Tensor, Tensor> fused_rms_norm_backward(const Tensor&, const Tensor& x, c10::IntArrayRef, const Tensor&,
                                                   const std::optional<Tensor>& w, std::array<bool, 2> wanted) {
  return {wanted[0] ? at::empty_like(x) : Tensor(), wanted[1] && w ? at::empty_like(*w) : Tensor()};
}

}  // namespace

struct HollowOps::Impl {
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__};
};

HollowOps::HollowOps() : impl_(std::make_unique<Impl>()) {
  torch::Library& library = impl_->library;
  library.impl("index_select", TORCH_FN(index_select));
  library.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
  library.impl("native_layer_norm", TORCH_FN(native_layer_norm));
  library.impl("native_layer_norm_backward", TORCH_FN(native_layer_norm_backward));
  library.impl("_fused_rms_norm", TORCH_FN(fused_rms_norm));
  library.impl("_fused_rms_norm_backward", TORCH_FN(fused_rms_norm_backward));
}
HollowOps::~HollowOps() = default;

}  // namespace lockstep
