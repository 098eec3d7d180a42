// GPUs of this process, by the name that LibTorch gives them ("cuda:1"): the one place that asks what one is, and what its
// memory holds. Through LibTorch's interface for any accelerator, so that nothing here needs CUDA to be compiled or tested.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/tensor/fwd.h"

namespace c10 {
struct Device;
}

namespace lockstep {

/// 1 of "cuda:1", 0 of "cuda"; nothing for a device that is no GPU.
std::optional<int> gpu_of(const std::string& torch_device);

/// Whether tensors there have memory of their own, which the host cannot touch, and a time of their own.
bool is_gpu(const c10::Device& device);

/// The tensor itself when it stands there, else a copy there. The host does not wait for a GPU that fetches from it.
Tensor sent_to(const Tensor& tensor, const c10::Device& device);

struct GpuMemory {
  int64_t free_bytes = 0, total_bytes = 0;                    // of the device, whoever uses it
  int64_t allocated_bytes = 0, reserved_bytes = 0;            // of this process
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;  // since reset_gpu_peak
};

// `device`: "cuda:1". Each starts the device where nothing has yet; LibTorch's own errors pass through.

GpuMemory gpu_memory(const std::string& device);
void reset_gpu_peak(const std::string& device);
/// Freed blocks go back to the device, for other processes and other sizes.
void empty_gpu_caches(const std::string& device);
/// What LibTorch's libraries of products keep on a GPU for good, for the thread that calls and for the one of the backward pass:
/// taken here, before the device's tensors are counted, it is a part of what the runtime holds beside them.
void take_memory_of_products(const std::string& device);
/// The host waits until the device has done all that it was given.
void synchronize_gpu(const std::string& device);
/// The GPU on which this thread's tensors and streams are when nothing says which. Every thread begins on the first.
void stand_on_gpu(const std::string& device);

/// A moment of a GPU's stream, which others can be ordered behind without the host waiting.
class GpuMoment {
 public:
  GpuMoment() = default;  // long past
  /// What this thread has queued on the GPU so far.
  static GpuMoment now(const std::string& device);
  static GpuMoment now(const c10::Device& device);  // of a tensor that stands there
  bool over() const;                                // whether the GPU is past it; from any thread
  /// What this thread queues there from now on begins after it.
  void order_current_stream() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// What this thread queues on a GPU while it lives goes to a stream for copies, beside what is computed there.
class [[nodiscard]] OnCopyStream {
 public:
  explicit OnCopyStream(const std::string& device);
  ~OnCopyStream();
  OnCopyStream(const OnCopyStream&) = delete;
  OnCopyStream& operator=(const OnCopyStream&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
