// Compiles the program's kernels (tensor/gpu_kernels.cuh) for the GPU that is there, and runs them.
#pragma once

#include <string_view>

#include "lockstep/tensor/gpu_launcher.h"

namespace lockstep {

GpuLauncher& kernel_launcher();

extern const std::string_view kGpuKernelsText;  // tensor/gpu_kernels.cuh

}  // namespace lockstep
