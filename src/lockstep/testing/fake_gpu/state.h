// What the fake GPUs of the process share: how many there are, what is counted, how late streams are.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep::fake_gpu {

struct State {
  static constexpr int kMostDevices = 8;
  std::atomic<int> devices{0};
  std::atomic<bool> initialized{false};  // LibTorch has asked for it
  std::array<std::atomic<bool>, kMostDevices> started{};
  struct Counts {
    static constexpr size_t kWaits = 4096;
    std::atomic<int64_t> launches{0}, host_waits{0}, system_allocations{0};
    std::array<std::atomic<int64_t>, kWaits> allocations_until_wait{};  // of the first ones
  };
  Counts own_counts;
  Counts* counts = &own_counts;  // or in memory that another process sees
  std::atomic<int64_t> default_delay_us{0}, other_delay_us{0};
  std::atomic<int> default_holds{0}, other_holds{0};
  std::atomic<const std::string*> broken{nullptr};  // what every question is answered with

  std::chrono::microseconds delay_of(bool is_default) const {
    return std::chrono::microseconds(is_default ? default_delay_us : other_delay_us);
  }
  std::atomic<int>& holds_of(bool is_default) { return is_default ? default_holds : other_holds; }
};
State& state();
inline void start(int device) { state().started.at(static_cast<size_t>(device)) = true; }
inline void count_host_wait() {
  State::Counts& counts = *state().counts;
  const auto number = static_cast<size_t>(counts.host_waits++);
  if (number < State::Counts::kWaits) counts.allocations_until_wait.at(number) = counts.system_allocations.load();
}
inline void check_unbroken() {
  if (const std::string* const words = state().broken) throw std::runtime_error(*words);
}

}  // namespace lockstep::fake_gpu
