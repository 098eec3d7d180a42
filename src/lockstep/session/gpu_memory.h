// Memory of the GPUs that a rank drives, by the name of the device: the one place that asks for it.
#pragma once

#include <string>

#include "lockstep/comm/cuda_api.h"  // GpuMemory

namespace lockstep {

/// `device`: "cuda:1". Each throws UserError(kUsage) when there is no CUDA library.
GpuMemory gpu_memory(const std::string& device);
void reset_gpu_peak(const std::string& device);
/// Of the whole GPU, for this process.
void limit_gpu(const std::string& device, double fraction);

}  // namespace lockstep
