// The signals that end a job, for a command that has nothing to save: it ends at once with exit code 130 and a word, and what it
// had half made is taken back.
//
// Example:
//   end_when_interrupted("lockstep export");
//   const UndoneWhenInterrupted undone([&] { std::filesystem::remove_all(temporary); });
#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <string>

#include "lockstep/base/worker.h"

namespace lockstep {

/// Ctrl-C, a batch system, a closed terminal; and what batch systems send some time before they end a job (Slurm's --signal=USR1@60, Grid
/// Engine's -notify, LSF's -wa).
inline constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/// Whether it tells of an end to come: the SIGTERM that follows is no second wish.
constexpr bool announces_an_end(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

/// A terminal's Ctrl-C and the launcher's forwarding of it are one wish, and so is what timeout(1) sends to its child and then to its group.
inline constexpr double kSameWishSeconds = 1.0;

/// Those of kEndingSignals that a job heeds, to be blocked: not what it was started to ignore, as under nohup, since one that is blocked would be
/// queued all the same. SIGINT and SIGTERM always.
sigset_t heeded_signals();

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
