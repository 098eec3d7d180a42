// The complete Tensor type, for headers whose members or inline bodies need it; all others include fwd.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/fwd.h"
