#include "lockstep/metric/program_run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLongestOutput = size_t{64} << 20, kErrorsKept = size_t{64} << 10;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ExitCode::kInternal, fmt::format("{}: {}", what, std::strerror(errno)));
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

/// What tells a library that it is one of several ranks would make a metric wait for the others.
std::vector<std::string> own_environment() {
  constexpr std::array kLaunchers = {"RANK",        "LOCAL_RANK",  "WORLD_SIZE",     "LOCAL_WORLD_SIZE", "GROUP_RANK",
                                     "MASTER_ADDR", "MASTER_PORT", "NPROC_PER_NODE", "LOCKSTEP_AGENT"};
  constexpr std::array kPrefixes = {"SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_"};
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry), name = text.substr(0, text.find('='));
    const bool left_out =
        std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end() ||
        std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
    if (!left_out) kept.emplace_back(text);
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (auto& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

/// After fork: calls that are safe there alone. A failure of exec goes through `report`, which exec closes.
[[noreturn]] void become(const char* path, char* const* argv, char* const* env, const std::array<int, 3>& fds,
                         int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int i = 0; i < 3; ++i) ::dup2(fds[static_cast<size_t>(i)], i);
  // Sockets of other ranks must not live on in the program.
  if (report > 3) ::close_range(3, static_cast<unsigned>(report) - 1, 0);
  ::close_range(static_cast<unsigned>(report) + 1, ~0U, 0);
  ::execve(path, argv, env);
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

UserError cannot_execute(const Program& program, int error) {
  const std::string why = error == ENOEXEC  ? "it begins with no #! line and is no binary"
                          : error == ENOENT ? "the interpreter that its first line names is not there"
                                            : std::strerror(error);
  return usage_error(fmt::format("--metric {}: {} cannot be executed: {}", program.text, program.path, why),
                     "begin it with a line such as #!/usr/bin/env python3, without a carriage return at its end");
}

}  // namespace

InputFile::InputFile() : fd_(::memfd_create("lockstep-rows", MFD_CLOEXEC)) {
  if (fd_ < 0) fail("a file of memory for a program's input");
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail("writing a program's input");
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

int InputFile::reopened() const {
  const int fd = ::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("opening a program's input");
  return fd;
}

ProgramRun::ProgramRun(const Program& program, const InputFile& input, Clock::duration patience) : deadline_(patience) {
  Pipe out, err, report;
  auto words = program.argv, environment = own_environment();
  const auto argv = pointers(words), env = pointers(environment);
  const int in = input.reopened();
  pid_ = ::fork();
  if (pid_ == 0) become(program.path.c_str(), argv.data(), env.data(), {in, out.write, err.write}, report.write);
  ::close(in);
  if (pid_ < 0) fail("starting " + program.path);
  for (Pipe* pipe : {&out, &err, &report}) ::close(std::exchange(pipe->write, -1));
  int error = 0;
  ssize_t size = 0;
  while ((size = ::read(report.read, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (size > 0) {
    ::waitpid(pid_, nullptr, 0);
    throw cannot_execute(program, error);
  }
  out_ = std::exchange(out.read, -1);
  err_ = std::exchange(err.read, -1);
  for (const int fd : {out_, err_}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

ProgramRun::~ProgramRun() {
  if (!ended_) {
    kill_all();
    ::waitpid(pid_, nullptr, 0);
  }
  close_all();
}

void ProgramRun::kill_all() const { ::kill(-pid_, SIGKILL); }

void ProgramRun::close_all() {
  for (int* fd : {&out_, &err_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
}

bool ProgramRun::advance(Clock::duration at_most) {
  const Deadline turn(at_most);
  while (!ended_) {
    read_outputs(std::min<Clock::duration>({turn.left(), deadline_.left(), Milliseconds(20)}));
    look_for_end();
    if (ended_ || turn.passed()) break;
  }
  return ended_;
}

/// True when something came.
bool ProgramRun::read_outputs(Clock::duration at_most) {
  std::array<pollfd, 2> fds = {{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  const auto wait = std::chrono::duration_cast<Milliseconds>(at_most).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(wait)) <= 0) return false;
  const bool came = fds[0].revents != 0 || fds[1].revents != 0;
  if (fds[0].revents != 0) take(out_, result_.output);
  if (fds[1].revents != 0) take(err_, result_.errors);
  if (result_.errors.size() > 2 * kErrorsKept) result_.errors.erase(0, result_.errors.size() - kErrorsKept);
  return came;
}

void ProgramRun::take(int& fd, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(fd, buffer.data(), buffer.size());
  if (size > 0) {
    into.append(buffer.data(), static_cast<size_t>(size));
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    ::close(std::exchange(fd, -1));
  }
}

/// A process that the program has left behind may hold the pipes open: its end counts, not theirs.
void ProgramRun::look_for_end() {
  result_.endless = result_.output.size() > kLongestOutput;
  result_.late = deadline_.passed() && !result_.endless;
  const bool killed = result_.late || result_.endless;
  if (killed) kill_all();
  siginfo_t info{};
  // Not yet taken from the system's table, so that its group's number cannot be another's when we kill that.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | (killed ? 0 : WNOHANG)) != 0) {
    if (errno == EINTR) return;
    fail("waiting for a program");
  }
  if (info.si_pid == 0) return;
  kill_all();
  constexpr int kMostLeft = 64;  // reads; a pipe holds no more
  for (int i = 0; i < kMostLeft && read_outputs(Clock::duration::zero()); ++i) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  result_.late = result_.late && WIFSIGNALED(status);  // it may have come to its end by itself just then
  if (WIFSIGNALED(status)) {
    result_.signal = WTERMSIG(status);
  } else {
    result_.exit_code = WEXITSTATUS(status);
  }
  result_.seconds = seconds();
  close_all();
}

}  // namespace lockstep
