#include "lockstep/guard/crash_words.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include <sys/mman.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/failure.h"
#include "lockstep/guard/board.h"

namespace lockstep {
namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no other way
std::atomic<Board*> crash_board{nullptr};
LastWords crash_words;  // made before, since a crash is no moment to make anything
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

bool gets_memory() {
  constexpr size_t kSome = size_t{1} << 20;  // the heap grows in steps of a tenth of it
  void* some = ::mmap(nullptr, kSome, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (some == MAP_FAILED) return false;
  ::munmap(some, kSome);
  return true;
}

/// Nobody handles what comes behind it: the same instruction crashes again, or the signal that somebody sent comes again.
extern "C" void lockstep_explain_crash(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  Board* board = crash_board.load();
  if (board != nullptr && board->life.load() != Life::kFailing && !gets_memory()) {
    crash_words.at_ns = steady_ns();
    crash_words.place = FixedText<256>(phase_text(board->phase.load(std::memory_order_relaxed)));
    board->last_words.write(crash_words);
    board->life.store(Life::kFailing, std::memory_order_release);
  }
  if (info->si_code <= 0) ::raise(signal);  // sent
  errno = saved;
}

}  // namespace

void explain_crashes_without_memory(std::shared_ptr<BoardMemory> board) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  static std::mutex one_at_a_time;  // ranks of a test are threads
  const std::lock_guard lock(one_at_a_time);
  static std::shared_ptr<BoardMemory> kept;  // as long as the handler may come
  kept = std::move(board);
  crash_words.exit_code = static_cast<int>(ExitCode::kMemory);
  crash_words.message =
      FixedText<4096>("out of memory: the system gives this process no more, and a library crashed on what it got");
  crash_words.hint = FixedText<1024>(kNeedLessMemory);
  crash_board.store(&kept->board());
  struct sigaction before {};
  if (::sigaction(SIGSEGV, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  static std::array<char, size_t{64} << 10> stack;  // of this thread; others have room on their own
  const stack_t own{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  ::sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_sigaction = lockstep_explain_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND | SA_SIGINFO);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, nullptr);
#else
  static_cast<void>(board);
#endif
}

}  // namespace lockstep
