// The program's GPU kernels, compiled for the host: what runs them on fake GPUs.
#pragma once

#include "lockstep/tensor/gpu_launcher.h"

namespace lockstep::fake_gpu {

GpuLauncher& kernel_launcher();

}  // namespace lockstep::fake_gpu
