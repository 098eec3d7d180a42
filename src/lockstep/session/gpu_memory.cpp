#include "lockstep/session/gpu_memory.h"

#include "lockstep/comm/cuda_library.h"
#include "lockstep/tensor/devices.h"

namespace lockstep {

GpuMemory gpu_memory(const std::string& device) { return require_cuda_library().memory(gpu_of(device).value()); }

void reset_gpu_peak(const std::string& device) { require_cuda_library().reset_peak(gpu_of(device).value()); }

void limit_gpu(const std::string& device, double fraction) {
  require_cuda_library().set_memory_fraction(gpu_of(device).value(), fraction);
}

}  // namespace lockstep
