// Whether a rank is about to give to the others what is no number.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::python {

/// Looks at so much of a tensor as costs little beside sending it: all of a small one, stretches of a large one. False for
/// one that is not in the memory of this host: to look there would wait for its device.
bool holds_nan(const at::Tensor& tensor);

}  // namespace lockstep::python
