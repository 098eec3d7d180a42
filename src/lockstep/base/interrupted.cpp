#include "lockstep/base/interrupted.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int kLookMs = 100;

std::array<char, 128> words{};  // a handler may not allocate
size_t words_size = 0;
std::atomic<int> undoer{-1};  // the descriptor of who takes back, or none

[[noreturn]] void say_and_end() {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words_size);
  ::_exit(static_cast<int>(ExitCode::kInterrupted));
}

void on_signal(int /*signal*/) {
  const int error = errno, fd = undoer;
  const uint64_t one = 1;
  if (fd < 0 || ::write(fd, &one, sizeof one) != sizeof one) say_and_end();
  errno = error;
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t heeded_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kEndingSignals) {
    if (signal == SIGINT || signal == SIGTERM || !is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

void end_when_interrupted(const std::string& program) {
  const std::string text = program + ": interrupted\n";
  words_size = std::min(text.size(), words.size());
  std::copy_n(text.begin(), words_size, words.begin());
  for (const int signal : kEndingSignals) {
    if (is_ignored(signal)) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

UndoneWhenInterrupted::UndoneWhenInterrupted(std::function<void()> undo)
    : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_("interrupted", [this, undo = std::move(undo)](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          pollfd ready{fd_, POLLIN, 0};
          if (::poll(&ready, 1, kLookMs) <= 0) continue;
          try {
            undo();
          } catch (...) {  // it ends all the same
          }
          say_and_end();
        }
      }) {
  undoer = fd_;
}

UndoneWhenInterrupted::~UndoneWhenInterrupted() {
  undoer = -1;
  listener_.request_stop();
  listener_.join();
  ::close(fd_);
}

}  // namespace lockstep
