// What the fn_*.cpp files share: the choice between the row kernels and LibTorch's own ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/kernels.h"

namespace lockstep::fn {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using Tensors = torch::autograd::variable_list;

/// Whether the program's own CPU code works on it, or is rehearsed with it.
inline bool on_cpu(const Tensor& x) { return x.is_cpu() || (x.is_meta() && DeviceMemory::current()->row_kernels()); }

/// Whether it is one of the dtypes that row kernels exist for.
inline bool is_element(const Tensor& x) {
  const auto dtype = x.scalar_type();
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

/// Row kernels exist for these dtypes on the CPU; everything else takes the composed path.
inline bool has_kernels(const Tensor& x) { return is_element(x) && on_cpu(x); }

template <typename T>
const T* read_of(const Tensor& x) {
  return static_cast<const T*>(x.const_data_ptr());
}
template <typename T>
T* write_of(const Tensor& x) {
  return static_cast<T*>(x.mutable_data_ptr());
}

/// Calls body.template operator()<float>(), <kernels::Bf16>() or <kernels::F16>(), by the dtype of x; nothing when x has no
/// bytes that the host can touch.
template <typename Body>
void with_element(const Tensor& x, const Body& body) {
  if (!x.is_cpu()) return;
  if (x.scalar_type() == at::kFloat) {
    body.template operator()<float>();
  } else if (x.scalar_type() == at::kHalf) {
    body.template operator()<kernels::F16>();
  } else {
    body.template operator()<kernels::Bf16>();
  }
}

/// The next multiple of `step`.
inline int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// Elements that a thread should at least have.
constexpr int64_t kGrain = 16384;
inline int64_t grain_of(int64_t dim) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, dim)); }

}  // namespace lockstep::fn
