#include "lockstep/cli/stop_signals.h"

#include <csignal>
#include <cstring>
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

constexpr double kSameWishSeconds = 1.0;  // a terminal's Ctrl-C and the launcher's forwarding of it are one wish
constexpr int kLookMs = 100;
constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);

}  // namespace

StopSignals::StopSignals(std::string program, std::shared_ptr<Recorder> recorder)
    : program_(std::move(program)), recorder_(std::move(recorder)) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);  // nohup; one that is blocked would be queued all the same
  check(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "SIGINT, SIGTERM and SIGHUP can be blocked");
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
  Clock::time_point first;
  while (!stop.stop_requested()) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, kLookMs) <= 0) continue;
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) continue;
    if (!heeded_) {
      end(static_cast<int>(info.ssi_signo), "interrupted before the first step", "nothing was saved");
    }
    if (!received_.exchange(true)) {
      first = Clock::now();
      say("stopping after this step, with a checkpoint; once more to end at once, without");
    } else if (seconds_since(first) > kSameWishSeconds) {
      end(static_cast<int>(info.ssi_signo), "ended at once", "what was not saved is lost");
    }
  }
}

}  // namespace lockstep
