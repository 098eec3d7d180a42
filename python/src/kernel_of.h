// The kernel that stands behind an operator for one kind of device, to be called when another one stands in front of it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

namespace lockstep::python {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9

using OriginalKernel = c10::SafeKernelFunction;

inline OriginalKernel kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.getComputedKernelForDispatchKey(key);
}

#else

using OriginalKernel = c10::KernelFunction;  // holds its kernel, so that it outlives the registration

// Before 2.9 the dispatcher gives none away. An explicit instantiation may name a private member: nothing else of the
// operator is touched.
auto definition_of(const c10::OperatorHandle& op);
template <auto kMember>
struct Definition {
  friend auto definition_of(const c10::OperatorHandle& op) { return op.*kMember; }
};
template struct Definition<&c10::OperatorHandle::operatorDef_>;

inline OriginalKernel kernel_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return definition_of(op)->op.lookup(c10::DispatchKeySet(key));
}

#endif

}  // namespace lockstep::python
