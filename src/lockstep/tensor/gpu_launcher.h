// What runs the kernels of gpu_kernels.cuh on a device: the CUDA library on a GPU, the tests' fake one on the host. Header only,
// so that the CUDA library links nothing else of ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One argument of a kernel, which has pointers, 64-bit numbers and floats alone.
struct KernelArgument {
  enum class Kind : uint8_t { kPointer, kInteger, kFloat };
  KernelArgument(void* to) : kind(Kind::kPointer), pointer(to) {}
  KernelArgument(int64_t value) : kind(Kind::kInteger), integer(value) {}
  KernelArgument(float value) : kind(Kind::kFloat), number(value) {}

  Kind kind;
  union {
    void* pointer;
    int64_t integer;
    float number;
  };
};

struct KernelGrid {
  int64_t x = 1, y = 1;   // blocks
  int threads = 256;      // of a block
  bool together = false;  // a block's threads meet and share its work, however many they are
};

class GpuLauncher {
 public:
  virtual ~GpuLauncher() = default;
  /// The device's compute capability, 90 of 9.0; 0 of one that is no GPU.
  virtual int generation(int device) = 0;
  /// Queues a kernel, "swiglu", for an instance, "bf16_wide", on the device's current stream. Throws std::exception when
  /// the device refuses.
  virtual void launch(int device, const std::string& kernel, const std::string& instance, const KernelGrid& grid,
                      std::vector<KernelArgument> arguments) = 0;
};

}  // namespace lockstep
