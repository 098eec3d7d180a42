// The kernel that stands behind an operator for one kind of device, to be called when another one stands in front of it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

namespace lockstep::python {

// The dispatcher gives none away that could be called without a stack, and before 2.9 none at all. An explicit instantiation may
// name a private member: nothing else of the operator is touched.
auto definition_of(const c10::OperatorHandle& op);
template <auto kMember>
struct Definition {
  friend auto definition_of(const c10::OperatorHandle& op) { return op.*kMember; }
};
template struct Definition<&c10::OperatorHandle::operatorDef_>;

/// Holds its kernel, so that it outlives the registration.
inline c10::KernelFunction direct_kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return definition_of(op)->op.lookup(c10::DispatchKeySet(key));
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9

using OriginalKernel = c10::SafeKernelFunction;

inline OriginalKernel kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.getComputedKernelForDispatchKey(key);
}

#else

using OriginalKernel = c10::KernelFunction;

inline OriginalKernel kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return direct_kernel_of(op, key);
}

#endif

}  // namespace lockstep::python
