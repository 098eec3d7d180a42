// Work that another thread may call off: long loops pass points at which a thread whose work is called off throws.
//
// For a job of one rank: of several the others would wait for what this one does not do any more.
//
// Example:
//   std::atomic<bool> called_off{false};                   // set by whoever wants the work to end
//   const Interruptible scope(called_off);                 // of this thread
//   for (const auto& block : blocks) { interruption_point(); run(block); }
#pragma once

#include <atomic>

#include "lockstep/base/error.h"

namespace lockstep {

class Interrupted final : public Error {
 public:
  Interrupted();
};

/// This thread's work ends at the next point when the flag is set.
class [[nodiscard]] Interruptible {
 public:
  explicit Interruptible(const std::atomic<bool>& called_off);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  const std::atomic<bool>* before_;
};

/// Throws Interrupted where this thread's work is called off. Costs a look at a variable of the thread.
void interruption_point();

}  // namespace lockstep
