// What liblockstep_cuda.so offers to the program: one table of functions, so that the program itself links no CUDA
// library.
//
// A program linked to CUDA pays 230 MiB a rank and needs the GPU wheels; this one opens the library when a GPU is
// wanted.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Backend;

struct GpuMemory {
  int64_t free_bytes = 0, total_bytes = 0;                    // of the device, whoever uses it
  int64_t allocated_bytes = 0, reserved_bytes = 0;            // of this process
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;  // since reset_peak
};

struct NcclGroup {
  void* store = nullptr;  // c10d::Store, borrowed for the call
  int rank = 0, size = 1, device = 0;
  int64_t patience_ms = 0;
};

/// Functions throw std::exception where they can fail.
struct CudaApi {
  static constexpr int kVersion = 2;
  int version = kVersion;
  int (*device_count)() = nullptr;
  std::string (*versions)() = nullptr;  // "CUDA 13.0, driver 13.0, NCCL 2.28.9": must be equal on all ranks
  void (*set_device)(int device) = nullptr;
  void (*synchronize)() = nullptr;  // the host waits for all work of the current device
  GpuMemory (*memory)(int device) = nullptr;
  void (*reset_peak)(int device) = nullptr;
  void (*set_memory_fraction)(int device, double fraction) = nullptr;  // of the device, for this process
  Backend* (*make_nccl_backend)(const NcclGroup& group) = nullptr;     // the caller owns it; collective
};

}  // namespace lockstep
