#include "lockstep/comm/cuda_api.h"

#include <cstring>
#include <exception>
#include <string>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "lockstep/cuda/kernel_launcher.h"
#include "lockstep/cuda/nccl_group.h"

namespace lockstep {
namespace {

c10::DeviceIndex index(int device) { return static_cast<c10::DeviceIndex>(device); }

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
    .set_memory_fraction =
        [](int device, double fraction) {
          at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // the allocator knows no device before
          c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, index(device));
        },
    .follow_memory =
        [](auto* gave, auto* took) {
          at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
          using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
          c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([=](const Entry& entry) {
            const auto* const address = reinterpret_cast<const void*>(entry.addr_);
            if (entry.action_ == Entry::ALLOC) gave(entry.device_, address, static_cast<size_t>(entry.size_));
            if (entry.action_ == Entry::FREE_REQUESTED) took(entry.device_, address);
          });
        },
    .pin =
        [](void* begin, size_t bytes) {
          const bool pinned = cudaHostRegister(begin, bytes, cudaHostRegisterPortable) == cudaSuccess;
          if (!pinned) (void)cudaGetLastError();  // else the next call would be told of it
          return pinned;
        },
    .unpin = [](void* begin) { (void)cudaHostUnregister(begin); },
    .kernel_launcher = [] { return &kernel_launcher(); },
    .make_nccl_group = [](const NcclOptions& options) { return make_nccl_group(options).release(); },
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) const lockstep::CudaApi* lockstep_cuda_api() {
  return &lockstep::kApi;
}

/// For tools/gpu_build_check.sh: bytes of machine code, or 0 and why.
extern "C" __attribute__((visibility("default"))) size_t lockstep_cuda_compile(const char* kind, char* why,
                                                                               size_t room) {
  try {
    return lockstep::compile_kernels_for(kind);
  } catch (const std::exception& error) {
    std::strncpy(why, error.what(), room - 1);
    return 0;
  }
}
