// What the fake GPUs of the process share: how many there are, what is counted, how late streams are.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::fake_gpu {

struct State {
  static constexpr int kMostDevices = 8;
  std::atomic<int> devices{0};
  std::atomic<bool> initialized{false};  // LibTorch has asked for it
  std::array<std::atomic<bool>, kMostDevices> started{};
  std::atomic<int64_t> launches{0}, host_waits{0}, system_allocations{0};
  std::atomic<int64_t> default_delay_us{0}, other_delay_us{0};
  std::atomic<int> default_holds{0}, other_holds{0};

  std::chrono::microseconds delay_of(bool is_default) const {
    return std::chrono::microseconds(is_default ? default_delay_us : other_delay_us);
  }
  std::atomic<int>& holds_of(bool is_default) { return is_default ? default_holds : other_holds; }
};
State& state();
inline void start(int device) { state().started.at(static_cast<size_t>(device)) = true; }

}  // namespace lockstep::fake_gpu
