// Ctrl-C and SIGTERM as a wish that the trainer honours at the end of a step. Made before any other thread, so that
// only its own thread sees the signals.
#pragma once

#include <atomic>
#include <memory>

#include "lockstep/base/worker.h"

namespace lockstep {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, 0: none so far. A second one, a moment later, ends the process at once.
  int received() const { return received_.load(); }

 private:
  void listen(const std::stop_token& stop);

  int fd_ = -1;
  std::atomic<int> received_{0};
  std::unique_ptr<Worker> listener_;
};

}  // namespace lockstep
