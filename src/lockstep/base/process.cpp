#include "lockstep/base/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ExitCode::kInternal, fmt::format("{}: {}", what, std::strerror(error)));
}

/// Words as exec takes them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    pointers_.reserve(words_.size() + 1);
    for (auto& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

/// What exec needs, made before fork: between fork and exec only calls that need no memory are safe.
struct Start {
  explicit Start(const SpawnOptions& given)
      : options(given),
        program(given.program.empty() && !given.body ? given.argv.at(0) : given.program),
        what(given.what.empty() ? program + " cannot be started" : given.what),
        argv(given.argv),
        own_environment(given.environment.value_or(std::vector<std::string>())),
        environment(given.environment ? own_environment.get() : environ),
        fds{given.in, given.out, given.err} {
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i] < 0 || fds[i] > STDERR_FILENO) continue;
      raised[i] = above_standard(fds[i]);  // or the others' dup2 could overwrite it, and its own leave it O_CLOEXEC
      fds[i] = raised[i].get();
    }
  }
  Descriptor above_standard(int fd) const {
    Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!copy.is_open()) fail(what, errno);
    return copy;
  }

  const SpawnOptions& options;
  std::string program, what;
  Words argv, own_environment;
  char* const* environment;
  std::array<int, 3> fds;
  std::array<Descriptor, 3> raised;
};

/// What posix_spawn is to do besides.
struct SpawnPlan {
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

pid_t spawn_by_system(const Start& start) {
  const SpawnOptions& options = start.options;
  SpawnPlan plan;
  int flags = 0;
  if (options.group == ProcessGroup::kOwn) flags |= POSIX_SPAWN_SETPGROUP;  // 0, the default: a new one
  if (options.group == ProcessGroup::kOwnSession) flags |= POSIX_SPAWN_SETSID;
  if (options.signal_mask) {
    flags |= POSIX_SPAWN_SETSIGMASK;
    ::posix_spawnattr_setsigmask(&plan.attributes, &*options.signal_mask);
  }
  if (!options.default_signals.empty()) {
    flags |= POSIX_SPAWN_SETSIGDEF;
    sigset_t defaults;
    ::sigemptyset(&defaults);
    for (const int signal : options.default_signals) ::sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigdefault(&plan.attributes, &defaults);
  }
  ::posix_spawnattr_setflags(&plan.attributes, static_cast<short>(flags));
  for (int i = 0; i < 3; ++i) {
    const int fd = start.fds[static_cast<size_t>(i)];
    if (fd >= 0) ::posix_spawn_file_actions_adddup2(&plan.actions, fd, i);
  }
  if (options.kept >= 0) ::posix_spawn_file_actions_adddup2(&plan.actions, options.kept, options.kept);
  if (options.close_others) ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, STDERR_FILENO + 1);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, start.program.c_str(), &plan.actions, &plan.attributes, start.argv.get(), start.environment);
  if (error != 0) throw ExecError(fmt::format("{}: {}", start.what, std::strerror(error)), error);
  return pid;
}

/// Handlers are of the program that was copied, as exec has it; what is ignored stays so.
void forget_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL) {
      ::signal(signal, SIG_DFL);
    }
  }
}

/// What exec would close.
void close_what_exec_closes() {
  std::vector<int> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const int flags = ::fcntl(fd, F_GETFD);
    if (fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) != 0) own.push_back(fd);
  }
  for (const int fd : own) ::close(fd);
}

/// After fork: calls that are safe there alone, unless there was one thread. A failure of exec goes through `report`, which
/// exec closes.
[[noreturn]] void become(const Start& start, pid_t parent, int report) {
  const SpawnOptions& options = start.options;
  if (options.group == ProcessGroup::kOwn) ::setpgid(0, 0);
  if (options.group == ProcessGroup::kOwnSession) ::setsid();
  if (options.ends_with_thread) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before we asked to be told
  }
  for (const int signal : options.default_signals) ::signal(signal, SIG_DFL);
  if (options.signal_mask) ::sigprocmask(SIG_SETMASK, &*options.signal_mask, nullptr);
  for (int i = 0; i < 3; ++i) {
    const int fd = start.fds[static_cast<size_t>(i)];
    if (fd >= 0) ::dup2(fd, i);
  }
  if (options.kept >= 0) ::fcntl(options.kept, F_SETFD, 0);
  if (options.close_others) {
    if (report > 3) ::close_range(3, static_cast<unsigned>(report) - 1, 0);
    ::close_range(static_cast<unsigned>(std::max(report, STDERR_FILENO)) + 1, ~0U, 0);
  }
  if (options.body) {
    close_what_exec_closes();
    forget_handlers();
    ::_exit([&]() noexcept { return options.body(); }());  // what it throws must not unwind into its parent's work
  }
  ::execve(start.program.c_str(), start.argv.get(), start.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written =
      options.last_words.empty() ? ::write(report, &error, sizeof error)
                                 : ::write(STDERR_FILENO, options.last_words.data(), options.last_words.size());
  ::_exit(127);
}

pid_t spawn_by_fork(const Start& start) {
  std::optional<Pipe> report;
  if (start.options.last_words.empty() && !start.options.body) {
    report.emplace(start.what);
    if (report->write.get() <= STDERR_FILENO) report->write = start.above_standard(report->write.get());
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail(start.what, errno);
  if (pid == 0) become(start, parent, report ? report->write.get() : -1);
  if (!report) return pid;
  report->write.close();
  int error = 0;
  ssize_t size = 0;
  while ((size = ::read(report->read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (size <= 0) return pid;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  throw ExecError(fmt::format("{}: {}", start.what, std::strerror(error)), error);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = other.release();
  return *this;
}

void Descriptor::close() {
  if (fd_ >= 0) ::close(release());
}

int Descriptor::release() { return std::exchange(fd_, -1); }

Pipe::Pipe(const std::string& what) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(what, errno);
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
}

Child::Child(Child&& other) noexcept
    : pid_(other.pid_),
      leads_group_(other.leads_group_),
      owned_(std::exchange(other.owned_, false)),
      status_(other.status_) {}

Child::~Child() {
  if (!owned_ || status_) return;
  signal(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Child::look(int options) const {
  if (status_) return true;
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | options) != 0) {
    if (errno != EINTR) fail(fmt::format("waiting for process {}", pid_), errno);
  }
  return info.si_pid != 0;
}

bool Child::ended() const { return look(WNOHANG); }

void Child::await_end() const { look(0); }

ExitStatus Child::wait() {
  await_end();
  if (!status_) {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = WIFSIGNALED(status) ? ExitStatus{.signal = WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status)};
  }
  return *status_;
}

std::optional<ExitStatus> Child::poll() {
  if (!ended()) return std::nullopt;
  return wait();
}

void Child::signal(int number) const {
  if (!status_) ::kill(leads_group_ ? -pid_ : pid_, number);
}

Child spawn(const SpawnOptions& options) {
  const Start start(options);
  // Without fork's copy of our address space where we can: a rank is large. Only a child can ask for its parent's end.
  const bool forks = options.ends_with_thread || !options.last_words.empty() || options.body;
  return {forks ? spawn_by_fork(start) : spawn_by_system(start), options.group != ProcessGroup::kShared};
}

bool has_one_thread() {
  std::error_code unknown;
  const std::filesystem::directory_iterator tasks("/proc/self/task", unknown);
  return !unknown && std::distance(begin(tasks), end(tasks)) == 1;
}

std::string read_all(int fd) {
  std::string all;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = ::read(fd, buffer.data(), buffer.size())) != 0;) {
    if (size > 0) all.append(buffer.data(), static_cast<size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  return all;
}

std::string read_line(int fd, Clock::duration patience) {
  const Deadline deadline(patience);
  std::string line;
  for (char letter = 0;;) {
    pollfd ready{fd, POLLIN, 0};
    const auto left = std::min<Clock::duration>(deadline.left(), std::chrono::hours(1));
    const int came = ::poll(&ready, 1, static_cast<int>(std::chrono::duration_cast<Milliseconds>(left).count()));
    if ((came < 0 && errno == EINTR) || (came == 0 && !deadline.passed())) continue;
    if (came <= 0) return line;
    const ssize_t size = ::read(fd, &letter, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size != 1 || letter == '\n') return line;
    line += letter;
  }
}

std::filesystem::path own_executable() { return std::filesystem::read_symlink("/proc/self/exe"); }

}  // namespace lockstep
