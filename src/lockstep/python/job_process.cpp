#include "lockstep/python/job_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nanobind/stl/string.h>  // what Python is called with
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/process.h"
#include "lockstep/python/call_off.h"
#include "lockstep/python/waiting.h"

namespace lockstep::python {
namespace nb = nanobind;
namespace {

SpawnOptions spawning(const std::vector<std::string>& argv, int lines, int nothing) {
  SpawnOptions options{.argv = argv, .what = "lockstep: " + argv.at(0), .environment = std::vector<std::string>()};
  auto variables = Env::process().all();
  variables["LOCKSTEP_EVENTS"] = std::to_string(lines);
  for (const auto& [name, value] : variables) options.environment->push_back(fmt::format("{}={}", name, value));
  options.in = nothing;
  // Of its own group: a terminal's Ctrl-C comes to us alone, and from us to it, once.
  options.group = ProcessGroup::kOwn;
  options.ends_with_thread = true;
  options.kept = lines;
  options.default_signals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD};
  sigset_t none;
  ::sigemptyset(&none);
  options.signal_mask = none;
  return options;
}

class RunningJob {
 public:
  RunningJob(const std::vector<std::string>& argv, const nb::object& on_line)
      : on_line_(on_line), nothing_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    child_.emplace(spawn(spawning(argv, lines_.write.get(), nothing_.get())));
    lines_.write.close();
    ::fcntl(lines_.read.get(), F_SETFL, O_NONBLOCK);
  }

  std::optional<int> wait() {
    Standing standing = Standing::kRuns;
    while (standing == Standing::kRuns) {
      {
        const WithoutPython others;
        constexpr int kLookMs =
            50;  // at signals, and at the job's end: what it has started may hold the pipe for longer
        pollfd ready{lines_.read.get(), POLLIN, 0};
        ::poll(&ready, 1, kLookMs);
        if (Waiting::called_off()) child_->signal(SIGKILL);
        standing = look();
      }
      take_lines();
      if (call_off_.asked()) stop();
    }
    std::optional<int> code;
    if (standing == Standing::kEnded) code = child_->wait().shell_code();
    child_->let_go();
    call_off_.raise();
    return code;
  }

 private:
  enum class Standing { kRuns, kEnded, kTaken };  // kTaken: somebody else has been told how it ended

  Standing look() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child_->pid()), &info, WEXITED | WNOWAIT | WNOHANG) != 0) {
      return errno == ECHILD ? Standing::kTaken : Standing::kRuns;
    }
    return info.si_pid != 0 ? Standing::kEnded : Standing::kRuns;
  }

  void take_lines() {
    std::array<char, 1 << 16> buffer;
    for (ssize_t size = 0; (size = ::read(lines_.read.get(), buffer.data(), buffer.size())) > 0;) {
      rest_.append(buffer.data(), static_cast<size_t>(size));
    }
    size_t begin = 0;
    for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      tell(rest_.substr(begin, end - begin));
    }
    rest_.erase(0, begin);
  }

  void tell(const std::string& line) {
    call_python([&] { hand_over(line); });
  }

  void hand_over(const std::string& line) {
    try {
      if (nb::cast<bool>(on_line_(line)) && requests_ == 0) stop();
    } catch (nb::python_error& error) {
      const bool by_hand =
          error.matches(PyExc_KeyboardInterrupt);  // Ctrl-C while Python was at work here: each one counts
      call_off_.take(std::move(error));
      if (by_hand || requests_ == 0) stop();
    }
  }

  void stop() { child_->signal(++requests_ > 2 ? SIGKILL : SIGINT); }

  const Waiting here_;
  const nb::object& on_line_;
  Descriptor nothing_;
  Pipe lines_{"lockstep: pipe"};
  std::optional<Child> child_;
  std::string rest_;  // of a line that has not come whole
  CallOff call_off_;
  int requests_ = 0;
};

}  // namespace

std::optional<int> run_job(const std::vector<std::string>& argv, const nb::object& on_line) {
  return RunningJob(argv, on_line).wait();
}

}  // namespace lockstep::python
