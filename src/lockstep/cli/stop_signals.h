// The signals that end a job (base/interrupted.h) as a wish that the trainer honours: it ends after the step that it is in, and
// saves. Before there is anything to save they end the process. Made before any other thread, so that only its own
// thread sees the signals.
//
// Example:
//   StopSignals signals("lockstep sft", recorder);                  // from here on a signal ends the process, in words
//   options.stop_wanted = [&] { return signals.wish(); };  // from the first call on it is a wish
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lockstep/base/worker.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

class StopSignals {
 public:
  /// Where it ends the process, `recorder` tells the roll call that this was a wish: another launcher's ranks end one after
  /// the other, and the first would look like a crash.
  StopSignals(std::string program, std::shared_ptr<Recorder> recorder);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether a signal came. Who asks promises to save and to end; a second signal, a moment later, ends the process at
  /// once; not one that announces an end, nor the first behind it.
  bool wish();
  /// This rank is the one that speaks to people.
  void speak() { speaks_ = true; }

 private:
  void listen(const std::stop_token& stop);
  void say(const std::string& text) const;
  [[noreturn]] void end(int signal, const std::string& text, const std::string& what_is_lost);

  std::string program_;
  std::shared_ptr<Recorder> recorder_;
  int fd_ = -1;
  std::atomic<bool> received_{false}, heeded_{false}, speaks_{false};
  std::unique_ptr<Worker> listener_;
};

}  // namespace lockstep
