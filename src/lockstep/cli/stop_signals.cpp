#include "lockstep/cli/stop_signals.h"

#include <csignal>

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr double kSameWishSeconds = 1.0;  // a terminal's Ctrl-C and the launcher's forwarding of it are one wish
constexpr int kLookMs = 100;

}  // namespace

StopSignals::StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  check(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "SIGINT and SIGTERM can be blocked");
  fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  check(fd_ >= 0, "a descriptor for signals can be had");
  listener_ = std::make_unique<Worker>("stop-signals", [this](const std::stop_token& stop) { listen(stop); });
}

StopSignals::~StopSignals() {
  listener_.reset();
  ::close(fd_);
}

void StopSignals::listen(const std::stop_token& stop) {
  Clock::time_point first;
  while (!stop.stop_requested()) {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, kLookMs) <= 0) continue;
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) continue;
    if (received_.load() == 0) {
      first = Clock::now();
      received_.store(static_cast<int>(info.ssi_signo));
    } else if (seconds_since(first) > kSameWishSeconds) {
      ::_exit(128 + static_cast<int>(info.ssi_signo));
    }
  }
}

}  // namespace lockstep
