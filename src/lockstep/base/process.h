// Child processes: started, read from, waited for. One place for what is easy to get wrong: descriptors that leak into
// other programs, calls that are not safe between fork and exec, processes that nobody collects.
//
// Example:
//   Pipe out;
//   Child child = spawn({.argv = {"/usr/bin/nvidia-smi", "-L"}, .out = out.write.get()});
//   out.write.close();                                  // or the end of the output never comes
//   const std::string text = read_all(out.read.get());
//   if (child.wait().shell_code() != 0) …
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep {

/// Closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }  // -1: none
  bool is_open() const { return fd_ >= 0; }
  void close();
  int release();  // the caller closes it

 private:
  int fd_ = -1;
};

/// Both ends are closed in programs that are started (O_CLOEXEC). `what` begins the message of Error(kInternal).
struct Pipe {
  explicit Pipe(const std::string& what = "pipe");
  Descriptor read, write;
};

/// How a process has ended: by itself, or by a signal.
struct ExitStatus {
  int exit_code = 0, signal = 0;
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
};

/// A process that this one has started. Its owner waits for it, lets it go, or ends it by its own end: nothing stays
/// behind. One thread at a time.
class Child {
 public:
  Child(pid_t pid, bool leads_group) : pid_(pid), leads_group_(leads_group) {}
  ~Child();  // SIGKILL and wait, unless it has been collected or let go
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  /// Whether it has ended. It stays in the system's table, so that its number and its group's cannot be another's.
  bool ended() const;
  void await_end() const;
  /// Collects it; waits for its end. Again: the same answer. These four throw Error(kInternal) when it is no child of
  /// ours any more (a program that ignores SIGCHLD has none).
  ExitStatus wait();
  /// wait() if it has ended.
  std::optional<ExitStatus> poll();
  /// To its group where it leads one; to nobody once it is collected.
  void signal(int number) const;
  /// It goes on when we are gone.
  void let_go() { owned_ = false; }

 private:
  bool look(int options) const;

  pid_t pid_;
  bool leads_group_, owned_ = true;
  std::optional<ExitStatus> status_;
};

/// kOwn: what is sent to our group does not reach it, and a signal to its group reaches what it has started itself.
/// kOwnSession: the terminal is not its own either.
enum class ProcessGroup { kShared, kOwn, kOwnSession };

struct SpawnOptions {
  std::vector<std::string> argv;
  std::string program{};  // the file that is executed, a path; argv[0] when empty
  std::string what{};     // begins the error's message; "<program> cannot be started" when empty
  std::optional<std::vector<std::string>> environment{};  // "NAME=value"; ours when absent
  int in = -1, out = -1, err = -1;                        // become its 0, 1, 2; -1: ours
  ProcessGroup group = ProcessGroup::kShared;
  bool ends_with_thread = false;  // SIGKILL when the thread that calls spawn ends (PR_SET_PDEATHSIG)
  int kept = -1;                  // a descriptor that it gets under its number; -1: none. Not with close_others
  bool close_others = false;      // descriptors from 3 on, whoever has opened them
  std::vector<int> default_signals{};
  std::optional<sigset_t> signal_mask{};
  /// Said on its standard error, with exit code 127, when the program cannot be executed: then spawn does not throw.
  std::string last_words{};
  /// In place of a program: what a copy of this process does, and then ends with that code. For a process with one thread, see
  /// has_one_thread(): what others hold in the moment of the copy nobody would let go there.
  std::function<int()> body{};
};

/// The program cannot be executed; `number` is the errno of exec.
class ExecError : public Error {
 public:
  ExecError(std::string message, int number) : Error(ExitCode::kInternal, std::move(message)), number_(number) {}
  int number() const noexcept { return number_; }

 private:
  int number_;
};

/// Throws ExecError; Error(kInternal) when there can be no process.
[[nodiscard]] Child spawn(const SpawnOptions& options);

/// Whether this process has no thread but the one that asks.
bool has_one_thread();

/// Everything until the end.
std::string read_all(int fd);

/// A line without its end; what there is of it when the patience or the file ends before it does. Nothing behind the
/// line is read.
std::string read_line(int fd, Clock::duration patience);

/// The file of the running program. Code that may be a library must not take it for ours: it may be a Python.
std::filesystem::path own_executable();

}  // namespace lockstep
