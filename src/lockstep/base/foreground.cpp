#include "lockstep/base/foreground.h"

#include <csignal>

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/process.h"
#include "lockstep/base/worker.h"

namespace lockstep {
namespace {

/// Who stops this process means what it runs: that ends in its own way, and this one after it.
class ForwardedSignals {
 public:
  ForwardedSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : kEndingSignals) sigaddset(&signals, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
    fd_ = Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    check(fd_.is_open(), "a descriptor for signals can be had");
  }
  ~ForwardedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  const sigset_t& before() const { return before_; }

  /// Until `stop`. The child is not collected in the meantime, so its number stays its own.
  void to(const Child& child, const std::stop_token& stop) const {
    constexpr int kLookMs = 50;
    while (!stop.stop_requested()) {
      pollfd ready{fd_.get(), POLLIN, 0};
      signalfd_siginfo info{};
      if (::poll(&ready, 1, kLookMs) <= 0 || ::read(fd_.get(), &info, sizeof info) != sizeof info) continue;
      // What the terminal sends, it sends to the child too.
      if (info.ssi_code != SI_KERNEL) child.signal(static_cast<int>(info.ssi_signo));
    }
  }

 private:
  sigset_t before_{};
  Descriptor fd_;
};

}  // namespace

Captured run_in_foreground(const std::vector<std::string>& argv, bool capture) {
  const ForwardedSignals signals;
  Pipe out;
  SpawnOptions options{
      .argv = argv, .out = capture ? out.write.get() : -1, .ends_with_thread = true, .signal_mask = signals.before()};
  Child child = spawn(options);
  out.write.close();
  Captured captured;
  {
    Worker forwarder("signals", [&](const std::stop_token& stop) { signals.to(child, stop); });
    if (capture) captured.output = read_all(out.read.get());
    child.await_end();
  }
  captured.code = child.wait().shell_code();
  return captured;
}

}  // namespace lockstep
