// The memory of one device, counted: every tensor of the process comes from one of these, or is told to one, as those of
// GPUs are, which LibTorch's own allocator gives.
//
// A device is the host ("cpu"), a GPU, a virtual device (a part of the host's memory with a limit of its own, so that
// all that is done over several devices can be tested without a GPU), or a rehearsed one: tensors there have shapes and
// no bytes, and are counted all the same, which is how the Plan knows what a step will need.
//
// Example:
//   const auto second = DeviceMemory::make("virtual:1", {.limit = int64_t{1} << 30});
//   const OnDevice scope(second);                      // of this thread
//   const UsedFor use(MemoryUse::kActivations);
//   Tensor x = at::empty({1024});                      // counted there; device_of(x) == second
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/tensor/fwd.h"

namespace c10 {
class DataPtr;
}

namespace lockstep {

/// What memory is for: the rows of a memory table.
enum class MemoryUse : uint8_t { kParams, kGradients, kOptimizer, kGathered, kActivations, kLogits, kCommunication };
inline constexpr size_t kMemoryUses = 7;
std::string_view memory_use_name(MemoryUse use);  // "parameters", …

/// When memory is needed: the columns.
enum class MemoryPhase : uint8_t { kLoad, kForward, kBackward, kStep, kSave, kEvaluate };
inline constexpr size_t kMemoryPhases = 6;
std::string_view memory_phase_name(MemoryPhase phase);  // "load", …

using BytesByUse = std::array<int64_t, kMemoryUses>;

struct MemoryPeak {
  int64_t bytes = 0;
  BytesByUse by_use{};  // at that moment
  std::string at;       // the block that was running
};

struct MemoryFigures {
  int64_t alive = 0;
  BytesByUse by_use{};
  std::array<MemoryPeak, kMemoryPhases> phases;  // since the device was made, or since reset_peaks()
  int64_t most_held = 0;  // with freed blocks that wait for the next taker: what the process has of the system

  const MemoryPeak& peak() const;
  MemoryPhase peak_phase() const;
};

/// What LibTorch's allocator of GPUs rounds a tensor's bytes up to.
inline constexpr int64_t kGpuRounding = 512;

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  struct Options {
    std::string torch_device = "cpu";  // what LibTorch calls the place of its tensors; "meta": rehearsed
    int64_t limit = kNoLimit;          // more than this is refused, and no freed block is kept beyond it
    int64_t rounding = 64;             // a tensor's bytes count in multiples of it, of pages when it is large
    bool row_kernels = true;           // rehearsed: as if computed by this program's CPU kernels, not LibTorch's ops
  };

  static std::shared_ptr<DeviceMemory> make(std::string name, Options options);
  /// The process's own memory, "cpu". The first call makes every host tensor of the process a counted one, or, in a
  /// process that is shared (tensor/libtorch_allocators.h), every one that a thread on a device makes.
  static const std::shared_ptr<DeviceMemory>& host();
  /// Where this thread's tensors are made: of the innermost OnDevice, else host().
  static const std::shared_ptr<DeviceMemory>& current();
  static bool stands_somewhere();  // whether there is an OnDevice
  /// Whose memory a tensor stands in; nullptr for memory that nobody counts (borrowed, or a mapped file).
  static std::shared_ptr<DeviceMemory> of(const Tensor& tensor);

  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  const std::string& name() const { return name_; }
  const std::string& torch_device() const { return options_.torch_device; }
  bool rehearsed() const { return options_.torch_device == "meta"; }  // its tensors are hollow
  bool row_kernels() const { return options_.row_kernels; }
  int64_t limit() const { return options_.limit; }
  void set_limit(int64_t bytes);

  /// Memory of a tensor, counted; of a hollow one it is counted only. Throws UserError(kMemory) with who holds what
  /// when the limit would be passed.
  c10::DataPtr allocate(size_t bytes, bool hollow);
  /// Memory that stands elsewhere, of which `counted` bytes are this device's to answer for. `owner` holds it.
  c10::DataPtr borrow(void* bytes, std::shared_ptr<const void> owner, size_t counted);
  static void (*deleter())(void* data);  // of what allocate() gave and is not hollow

  /// The one that stands for a GPU; nullptr where none does.
  static std::shared_ptr<DeviceMemory> of_gpu(int gpu);
  /// Of GPU number `gpu`: its allocator has given a block to this thread, or has it back. Nothing where none was made.
  static void gpu_gave(int gpu, const void* address, size_t bytes);
  static void gpu_took(int gpu, const void* address);

  MemoryFigures figures() const;
  int64_t alive_bytes() const;
  int64_t peak_bytes() const;
  void look();                       // what is alive counts as needed where this thread stands
  void reset_peaks();                // every phase begins anew at what is alive
  static bool keeps_freed_blocks();  // for the next taker; not under the address sanitizer

 private:
  struct Impl;
  DeviceMemory(std::string name, Options options);
  [[noreturn]] void refuse(size_t bytes) const;

  std::string name_;
  Options options_;
  std::unique_ptr<Impl> impl_;
};

/// The thread's tensors are made there while it lives.
class [[nodiscard]] OnDevice {
 public:
  explicit OnDevice(std::shared_ptr<DeviceMemory> device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  std::shared_ptr<DeviceMemory> before_;
};

/// What the thread's tensors are for while it lives; kActivations otherwise.
class [[nodiscard]] UsedFor {
 public:
  explicit UsedFor(MemoryUse use);
  ~UsedFor();
  UsedFor(const UsedFor&) = delete;
  UsedFor& operator=(const UsedFor&) = delete;

 private:
  MemoryUse before_;
};

/// Where the thread is, for peaks of its device.
void memory_stands_at(MemoryPhase phase, std::string_view block);

}  // namespace lockstep
