// The sum of squares of many numbers, for the norm of gradients.
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// Of x [n], a float64 scalar where x stands. Of float32 on a CPU summed in float64, in an order that neither threads nor
/// instruction sets change: a float32 sum of 10^8 squares loses a hundredth of them. Infinite where float32 is at its end.
Tensor sum_of_squares(const Tensor& x);

}  // namespace lockstep
