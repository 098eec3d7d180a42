// A GPU that is none: LibTorch's PrivateUse1 device on threads of this process, so that what only goes wrong on a device with
// memory and time of its own goes wrong here too.
//
// What it has of a real one: the host cannot touch its memory (a read faults); a call returns when it is queued; streams are
// threads that only events order; memory that was freed is given out again at once on the stream that made it, and is full
// of NaN when that stream comes to the free; a tensor of another device is refused; a thread begins on device 0. Ops run on
// the CPU's kernels.
//
// Example:
//   FakeGpu::install(2);
//   const Tensor x = at::ones({4}, at::device(FakeGpu::device(1)));
//   x.add_(1);                       // queued
//   x.sum().item<float>();           // waits: FakeGpu::counts().host_waits is 1 more
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace c10 {
struct Device;
}

namespace lockstep {

/// Since the process began, over all devices and threads.
struct FakeGpuCounts {
  int64_t launches = 0;    // ops and copies that were queued
  int64_t host_waits = 0;  // the host waited for a stream, an event or a device, or copied from or to pageable memory
  int64_t system_allocations = 0;  // memory was taken that no freed block could give
};

class FakeGpu {
 public:
  /// Once a process, before anything asks how many there are: `count` devices, each of `bytes`. Again: it must be the same.
  static void install(int count, int64_t bytes = int64_t{1} << 30);

  static c10::Device device(int index);
  static std::string name(int index);  // "fakegpu:1", as LibTorch reads it

  static FakeGpuCounts counts();
  /// From now on the counts stand in a file, for other processes and after this one: 64-bit numbers in their order, and behind
  /// them how many allocations there were at each of the first 4096 waits.
  static void count_in(const std::string& path);
  /// Whatever is asked of a device from now on throws these words: as CUDA does after a kernel that read beyond its memory.
  static void break_with(const std::string& words);
  /// Whether a thread has allocated on the device, or asked for an event while it stood there: with CUDA that opens a context
  /// of half a GiB, by mistake as well.
  static bool started(int index);
  static void forget_started();

  /// While it lives nothing runs on the default streams of all devices, or on all others. What the host waits for there
  /// would wait for ever.
  class [[nodiscard]] Hold {
   public:
    enum class Which : uint8_t { kDefault, kOthers };
    explicit Hold(Which which);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Which which_;
  };

  /// Every call waits so long before it runs: on the devices' default streams, and on all others. What is not ordered by
  /// an event shows when one of them is late. Of all devices, from now on.
  static void delay(std::chrono::microseconds default_stream, std::chrono::microseconds other_streams);
};

}  // namespace lockstep
