// How many GPUs this process may use, without starting the CUDA driver.
#pragma once

#include <string>

#include "lockstep/base/env.h"

namespace lockstep {

/// Devices of CUDA_VISIBLE_DEVICES (set but empty: none), else /dev/nvidia0, 1, …
int visible_gpus(const Env& env);

/// "cpu", or "cuda:<local rank>". `wanted`: auto, cpu, cuda. Throws UserError(kUsage) when cuda is wanted and there is
/// no GPU, or fewer than local ranks.
std::string device_of(const std::string& wanted, int local_rank, const Env& env);

}  // namespace lockstep
