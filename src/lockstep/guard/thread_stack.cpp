#include "lockstep/guard/thread_stack.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/guard/process.h"

namespace lockstep {
namespace {

constexpr int kMaxFrames = 64;
constexpr int kOwnFrames = 2;  // the handler, and the kernel's way into it

/// The handler writes here; one question at a time.
struct Answer {
  std::array<void*, kMaxFrames> frames;
  std::atomic<int> count{-1};
};
Answer answer;            // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): a handler has no other way
std::mutex one_question;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

int signal_number() { return SIGRTMIN + 7; }

extern "C" void lockstep_take_stack(int /*signal*/) {
  const int saved = errno;
  answer.count.store(::backtrace(answer.frames.data(), kMaxFrames), std::memory_order_release);
  errno = saved;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  std::string out = status == 0 ? text.get() : name;
  for (size_t at; (at = out.find("lockstep::(anonymous namespace)::")) != std::string::npos;) out.replace(at, 33, "");
  constexpr size_t kLongest = 120;
  return out.size() > kLongest ? out.substr(0, kLongest) + "…" : out;
}

std::string frame_text(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return fmt::format("{}", fmt::ptr(address));
  const std::string_view path(info.dli_fname != nullptr ? info.dli_fname : "?");
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (info.dli_sname != nullptr) return fmt::format("{} ({})", demangled(info.dli_sname), file);
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase);
  return fmt::format("{}+{:#x}", file, offset);
}

}  // namespace

void prepare_thread_stacks() {
  std::array<void*, 4> frames;
  ::backtrace(frames.data(), static_cast<int>(frames.size()));
  struct sigaction action {};
  action.sa_handler = lockstep_take_stack;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal_number(), &action, nullptr);
}

std::string stack_of_thread(pid_t tid, Clock::duration patience) {
  const std::lock_guard lock(one_question);
  answer.count.store(-1);
  if (::syscall(SYS_tgkill, ::getpid(), tid, signal_number()) != 0) return "the thread has ended";
  const Deadline deadline(patience);
  while (answer.count.load(std::memory_order_acquire) < 0 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const int count = answer.count.load(std::memory_order_acquire);
  if (count < 0) {
    const ProcessLook look = look_at_process(::getpid(), tid);
    return fmt::format("no answer: the thread is {}{}", look.in_kernel ? "blocked in the kernel" : "not running",
                       look.waits_in.empty() ? "" : " in " + look.waits_in);
  }
  std::string text;
  for (int i = kOwnFrames; i < count; ++i) {
    text += fmt::format("{}{}", text.empty() ? "" : "\n", frame_text(answer.frames[static_cast<size_t>(i)]));
  }
  return text;
}

}  // namespace lockstep
