#include "lockstep/comm/cuda_api.h"

#include <string>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "lockstep/cuda/backend_nccl.h"

namespace lockstep {
namespace {

c10::DeviceIndex index(int device) { return static_cast<c10::DeviceIndex>(device); }

GpuMemory memory_of(int device) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const c10::cuda::CUDAGuard guard(index(device));
  const auto [free_bytes, total_bytes] = allocator::get()->getMemoryInfo(index(device));
  const auto stats = allocator::getDeviceStats(index(device));
  const auto& allocated = stats.allocated_bytes[0];  // 0: over all pools
  const auto& reserved = stats.reserved_bytes[0];
  return {static_cast<int64_t>(free_bytes),
          static_cast<int64_t>(total_bytes),
          allocated.current,
          reserved.current,
          allocated.peak,
          reserved.peak};
}

/// With the standard library alone: this library links nothing else of ours.
std::string versions() {
  int runtime = 0, driver = 0, nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  ncclGetVersion(&nccl);
  // CUDA: 1000 * major + 10 * minor. NCCL since 2.9: 10000 * major + 100 * minor + patch.
  const auto cuda = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return "CUDA " + cuda(runtime) + ", driver " + cuda(driver) + ", NCCL " + std::to_string(nccl / 10000) + "." +
         std::to_string(nccl % 10000 / 100) + "." + std::to_string(nccl % 100);
}

const CudaApi kApi{
    .device_count = [] { return static_cast<int>(c10::cuda::device_count()); },
    .versions = versions,
    .set_device = [](int device) { c10::cuda::set_device(index(device)); },
    .synchronize = [] { c10::cuda::device_synchronize(); },
    .memory = memory_of,
    .reset_peak = [](int device) { c10::cuda::CUDACachingAllocator::resetPeakStats(index(device)); },
    .set_memory_fraction =
        [](int device, double fraction) {
          c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, index(device));
        },
    .make_nccl_backend = [](const NcclGroup& group) { return make_nccl(group).release(); },
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) const lockstep::CudaApi* lockstep_cuda_api() {
  return &lockstep::kApi;
}
