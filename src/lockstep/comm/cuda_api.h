// What liblockstep_cuda.so offers to the program: one table of functions, so that the program itself links no CUDA
// library. What LibTorch offers for any accelerator is not among it (tensor/gpus.h).
//
// A program linked to CUDA pays 230 MiB a rank and needs the GPU wheels; this one opens the library when a GPU is
// wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

class DeviceGroup;
class GpuLauncher;

struct NcclOptions {
  void* store = nullptr;  // c10d::Store, borrowed for the call
  int rank = 0, size = 1, device = 0;
  int64_t patience_ms = 0;
};

/// Functions throw std::exception where they can fail.
struct CudaApi {
  static constexpr int kVersion = 6;
  int version = kVersion;
  int (*device_count)() = nullptr;
  std::string (*versions)() = nullptr;  // "CUDA 13.0, driver 13.0, NCCL 2.28.9": must be equal on all ranks
  void (*set_memory_fraction)(int device, double fraction) = nullptr;  // of the device, for this process
  /// Tells of every block that a device's allocator gives to the calling thread, and of every one that it has back.
  void (*follow_memory)(void (*gave)(int device, const void* address, size_t bytes),
                        void (*took)(int device, const void* address)) = nullptr;
  /// Lets GPUs fetch from host memory of whole pages by themselves; false where the system refuses.
  bool (*pin)(void* begin, size_t bytes) = nullptr;
  void (*unpin)(void* begin) = nullptr;
  GpuLauncher* (*kernel_launcher)() = nullptr;  // of this process; compiles the kernels for a GPU when it is first used
  DeviceGroup* (*make_nccl_group)(const NcclOptions& options) = nullptr;  // the caller owns it; collective
};

}  // namespace lockstep
