// Ctrl-C, SIGTERM and SIGHUP (a closed terminal) for a command that has nothing to save: it ends at once with exit code 130 and a
// word, and what it had half made is taken back.
//
// Example:
//   end_when_interrupted("lockstep export");
//   const UndoneWhenInterrupted undone([&] { std::filesystem::remove_all(temporary); });
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/worker.h"

namespace lockstep {

/// From here on, and in no process that is started. Signals that are ignored (nohup) stay so.
void end_when_interrupted(const std::string& program);

/// Whether this process was started to ignore it, as under nohup.
bool is_ignored(int signal);

/// While it lives (one at a time), `undo` runs before the process ends so, in a thread of its own beside all others.
class UndoneWhenInterrupted {
 public:
  explicit UndoneWhenInterrupted(std::function<void()> undo);
  ~UndoneWhenInterrupted();
  UndoneWhenInterrupted(const UndoneWhenInterrupted&) = delete;
  UndoneWhenInterrupted& operator=(const UndoneWhenInterrupted&) = delete;

 private:
  int fd_ = -1;
  Worker listener_;
};

}  // namespace lockstep
