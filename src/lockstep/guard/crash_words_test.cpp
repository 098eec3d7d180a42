// A crash with and without memory to be had, in a child of the test.
#include "lockstep/guard/crash_words.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those explain crashes themselves

#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/guard/board.h"

namespace lockstep {
namespace {

struct Crash {
  int signal = 0;
  int64_t exit_code = 0;
  std::string message;
};

Crash crashed(bool without_memory, bool sent) {
  const auto board = BoardMemory::create();
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    explain_crashes_without_memory(board);
    if (without_memory) {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_AS, &none);
    }
    if (sent) ::kill(::getpid(), SIGSEGV);
    *static_cast<volatile int*>(nullptr) = 1;  // NOLINT: it is meant to crash
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const LastWords words = board->board().last_words.read_any();
  return {WIFSIGNALED(status) ? WTERMSIG(status) : 0, words.exit_code, std::string(words.message.view())};
}

TEST(CrashWords, SayThatMemoryWasFullAndTheCrashGoesOn) {
  for (const bool sent : {false, true}) {
    const Crash full = crashed(/*without_memory=*/true, sent);
    EXPECT_EQ(full.signal, SIGSEGV);
    EXPECT_EQ(full.exit_code, static_cast<int64_t>(ExitCode::kMemory));
    EXPECT_NE(full.message.find("out of memory"), std::string::npos);
    const Crash other = crashed(/*without_memory=*/false, sent);
    EXPECT_EQ(other.signal, SIGSEGV);
    EXPECT_EQ(other.message, "") << "a crash is no question of memory";
  }
}

}  // namespace
}  // namespace lockstep

#endif
