#include "lockstep/cli/stop_signals.h"

#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"

namespace lockstep {
namespace {

constexpr int kLookMs = 100;
constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);

}  // namespace

StopSignals::StopSignals(std::string program, std::shared_ptr<Recorder> recorder)
    : program_(std::move(program)), recorder_(std::move(recorder)) {
  const sigset_t signals = heeded_signals();
  check(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "the signals that end a job can be blocked");
  fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  check(fd_ >= 0, "a descriptor for signals can be had");
  listener_ = std::make_unique<Worker>("stop-signals", [this](const std::stop_token& stop) { listen(stop); });
}

StopSignals::~StopSignals() {
  listener_.reset();
  ::close(fd_);
}

bool StopSignals::wish() {
  heeded_ = true;
  return received_;
}

/// By write(2): the terminal may be gone, and no lock of a stream may be waited for.
void StopSignals::say(const std::string& text) const {
  const std::string line = program_ + ": " + text + "\n";
  if (speaks_) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void StopSignals::end(int signal, const std::string& text, const std::string& what_is_lost) {
  say(text + "; " + what_is_lost);
  const char* const name = ::sigabbrev_np(signal);
  recorder_->say_stopped(text + (name == nullptr ? "" : std::string(" (SIG") + name + ")") + "; " + what_is_lost);
  ::_exit(kInterrupted);
}

void StopSignals::listen(const std::stop_token& stop) {
  std::optional<Clock::time_point> asked;  // by one that does not announce an end alone
  while (!stop.stop_requested()) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, kLookMs) <= 0) continue;
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (!heeded_) end(signal, "interrupted before the first step", "nothing was saved");
    if (!received_.exchange(true)) {
      say("stopping after this step, with a checkpoint; once more to end at once, without");
    }
    if (announces_an_end(signal)) continue;
    if (asked && seconds_since(*asked) > kSameWishSeconds) end(signal, "ended at once", "what was not saved is lost");
    if (!asked) asked = Clock::now();
  }
}

}  // namespace lockstep
