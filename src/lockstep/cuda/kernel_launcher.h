// Compiles the program's kernels (tensor/gpu_kernels.cuh, gpu_decode.cuh) for the GPU that is there, and runs them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/tensor/gpu_launcher.h"

namespace lockstep {

/// Throws std::runtime_error when NVIDIA's run-time compiler cannot be opened.
GpuLauncher& kernel_launcher();

/// Compiles all of them for GPUs of a kind, "sm_90", which need not be here: bytes of machine code. Throws std::runtime_error.
size_t compile_kernels_for(const std::string& kind);

extern const std::string_view kGpuKernelsText;  // tensor/gpu_kernels.cuh, gpu_decode.cuh

}  // namespace lockstep
