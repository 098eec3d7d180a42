// Whether numbers are numbers.
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// Neither infinite nor NaN, every element. Reads the tensor once; synchronises with its device.
bool all_finite(const Tensor& x);

}  // namespace lockstep
