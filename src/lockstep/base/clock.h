// Deadlines: every wait has one, and it can be asked what is left.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

class Deadline {
 public:
  /// A patience beyond the clock's range never passes.
  explicit Deadline(Clock::duration patience) : end_(after(Clock::now(), patience)) {}
  bool passed() const { return Clock::now() >= end_; }
  Clock::duration left() const { return std::max(end_ - Clock::now(), Clock::duration::zero()); }

 private:
  static Clock::time_point after(Clock::time_point now, Clock::duration patience) {
    return patience >= Clock::time_point::max() - now ? Clock::time_point::max() : now + patience;
  }

  Clock::time_point end_;
};

/// Seconds since `start`.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU seconds this process has used, all threads.
double process_cpu_seconds();

}  // namespace lockstep
