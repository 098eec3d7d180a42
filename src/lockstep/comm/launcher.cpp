#include "lockstep/comm/launcher.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/comm/rank_output.h"
#include "lockstep/comm/world.h"
#include "lockstep/guard/agent.h"
#include "lockstep/guard/frames.h"
#include "lockstep/guard/tree_key.h"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

[[noreturn]] void system_error(const std::string& what) {
  throw Error(ExitCode::kInternal, fmt::format("starting ranks: {}: {}", what, std::strerror(errno)));
}

/// What rank `local` of this node gets to know. `world` is this node's place among the nodes.
Variables rank_variables(const Env& env, const World& world, int local, int processes, int port,
                         const std::string& agent, int attempt, const std::string& id) {
  Variables all = env.all();
  for (const char* stale : {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"}) all.erase(stale);
  const auto set = [&all](const char* name, const auto& value) { all[name] = fmt::format("{}", value); };
  set("RANK", world.node * processes + local);
  set("LOCAL_RANK", local);
  set("WORLD_SIZE", world.num_nodes * processes);
  set("LOCAL_WORLD_SIZE", processes);
  set("GROUP_RANK", world.node);
  set("GROUP_WORLD_SIZE", world.num_nodes);
  set("MASTER_ADDR", world.master_addr);
  set("MASTER_PORT", port);
  set("LOCKSTEP_LAUNCHED", 1);
  set("LOCKSTEP_LAUNCH_ID", id);
  agent.empty() ? static_cast<void>(all.erase("LOCKSTEP_AGENT")) : set("LOCKSTEP_AGENT", agent);
  if (attempt > 0) set("TORCHELASTIC_RESTART_COUNT", attempt);
  if (!env.has("OMP_NUM_THREADS")) set("OMP_NUM_THREADS", std::max(1, usable_cores() / processes));
  return all;
}

/// Of this process. libgomp has read its variable when the program was loaded.
void take_environment(const Variables& variables) {
  ::clearenv();
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  if (const auto threads = asked_threads(Env(variables))) at::set_num_threads(*threads);
}

std::vector<std::string> exec_environment(const Variables& variables) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : variables) strings.push_back(fmt::format("{}={}", name, value));
  return strings;
}

struct RankProcess {
  int rank;
  Child child;
  bool has_ended = false;
};

/// The signals that the launcher reads from a descriptor instead of being interrupted by them.
class Signals {
 public:
  Signals() {
    sigset_t wanted = heeded_signals();
    for (const int signal : {SIGQUIT, SIGCHLD}) sigaddset(&wanted, signal);
    ::sigprocmask(SIG_BLOCK, &wanted, &before_);
    // An inherited "ignore" would make the kernel collect children before we can ask how they ended.
    child_handler_ = std::signal(SIGCHLD, SIG_DFL);
    fd_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) system_error("signalfd");
  }
  ~Signals() {
    for (signalfd_siginfo info; ::read(fd_, &info, sizeof info) > 0;) {  // or they would be delivered now
    }
    ::close(fd_);
    std::signal(SIGCHLD, child_handler_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
  int fd_ = -1;
  void (*child_handler_)(int) = SIG_DFL;
};

std::set<pid_t> children() {
  std::set<pid_t> out;
  std::ifstream list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (pid_t pid = 0; list >> pid;) out.insert(pid);
  return out;
}

/// What ranks have started themselves comes to us when they end (PR_SET_CHILD_SUBREAPER): it must not stay either. `others` were
/// there before: of a shell that became this program by exec, such as what reads its output.
void end_orphans(const std::set<pid_t>& others) {
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    bool any = false;
    for (const pid_t pid : children()) {
      if (others.contains(pid)) continue;
      any = true;
      ::kill(pid, SIGKILL);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!any) return;
    ::usleep(10'000);
  }
}

class Launch {
 public:
  Launch(const LaunchOptions& options, Agent& agent, Signals& signals)
      : options_(options), agent_(agent), signals_(signals) {}
  ~Launch() {  // an exception on the way: no orphans
    signal_all(SIGKILL);
    ranks_.clear();
    end_orphans(others_);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  void start(int rank, int local, const std::vector<std::string>& argv, const Variables& variables);
  int wait();
  /// Until now: also behind the last rank's end, or a job would be started again that somebody has stopped.
  bool interrupted() {
    take_signals();
    return interrupted_;
  }
  /// Of the rank whose code is that of all: one that heeded the signal has said itself how it ended, with 130 too.
  bool ended_by_signal() const { return by_signal_; }
  /// The ranks, since a person has asked often enough.
  bool has_killed() const { return killed_; }

 private:
  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.has_ended; });
  }
  void signal_all(int signal) const {
    for (const auto& rank : ranks_) rank.child.signal(signal);
  }
  void kill_all() {
    killed_ = true;
    signal_all(SIGKILL);
  }
  void poll_once();
  void take_signals();
  void collect();

  LaunchOptions options_;
  const std::set<pid_t> others_ = children();
  Agent& agent_;
  Signals& signals_;
  std::vector<RankProcess> ranks_;
  std::vector<RankOutput> outputs_;
  int requests_ = 0;                        // to end: signals, but for those that announce an end to come
  std::optional<Clock::time_point> asked_;  // first
  std::optional<Deadline> deadline_;        // SIGKILL after it
  int result_ = 0;
  bool by_signal_ = false, interrupted_ = false, killed_ = false;
};

void Launch::start(int rank, int local, const std::vector<std::string>& argv, const Variables& variables) {
  SpawnOptions options{.argv = argv,
                       .what = "starting ranks: fork",
                       .environment = exec_environment(variables),
                       .ends_with_thread = true,
                       .signal_mask = signals_.before(),
                       .last_words = "lockstep: this program could not be started again for a rank\n"};
  if (options_.run_here && has_one_thread()) {
    std::fflush(nullptr);  // or the copy would say it too
    options.body = [&] {
      take_environment(variables);
      return options_.run_here(argv);
    };
  }
  const bool owns_terminal = local == 0;
  std::optional<Pipe> out, err;
  if (!owns_terminal) {
    for (auto* pipe : {&out, &err}) pipe->emplace("starting ranks: pipe");
    options.out = out->write.get();
    options.err = err->write.get();
  }
  ranks_.push_back({rank, spawn(options)});
  agent_.started(rank, local, ranks_.back().child.pid());
  if (owns_terminal) return;
  outputs_.emplace_back(rank, out->read.release(), STDOUT_FILENO);
  outputs_.emplace_back(rank, err->read.release(), STDERR_FILENO);
}

int Launch::wait() {
  while (!all_ended()) {
    poll_once();
    take_signals();
    collect();
    if (deadline_ && deadline_->passed()) kill_all();
  }
  // Not until the pipes end: a process that a rank left behind may hold them open.
  for (auto& output : outputs_) output.finish();
  end_orphans(others_);
  return result_;
}

void Launch::poll_once() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  for (const auto& output : outputs_) fds.push_back({output.fd(), POLLIN, 0});  // a negative one is skipped
  // Where the program has other threads, a driver's or a host language's, the end of a child may be told to one of them.
  constexpr int kLookMs = 200;
  if (::poll(fds.data(), fds.size(), kLookMs) <= 0) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (fds[i + 1].revents != 0) outputs_[i].pump();
  }
}

void Launch::take_signals() {
  for (signalfd_siginfo info; ::read(signals_.fd(), &info, sizeof info) > 0;) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (asked_ && seconds_since(*asked_) < kSameWishSeconds) continue;
    if (!std::exchange(interrupted_, true)) agent_.asked_to_stop();
    if (announces_an_end(signal)) {
      signal_all(signal);
      continue;
    }
    ++requests_;
    if (!asked_) asked_ = Clock::now();
    // What the terminal sends, it sends to the ranks too.
    if (requests_ == 1 && info.ssi_code != SI_KERNEL) signal_all(signal);
    if (requests_ == 2) {
      agent_.interrupted();
      signal_all(SIGTERM);
      deadline_.emplace(std::chrono::seconds(options_.grace_seconds));
    }
    if (requests_ > 2) kill_all();
  }
}

void Launch::collect() {
  for (auto& rank : ranks_) {
    if (rank.has_ended) continue;
    const auto status = rank.child.poll();
    if (!status) continue;
    rank.has_ended = true;
    agent_.process_ended(rank.rank, {.known = true, .exit_code = status->exit_code, .signal = status->signal});
    if (result_ != 0) continue;
    result_ = status->shell_code();
    by_signal_ = status->signal != 0;
  }
}

/// This node among the nodes, where variables of pods say so; alone otherwise.
World node_world(const Env& env) {
  const World world = World::from_env(env);
  if (env.has("LOCAL_RANK") || world.num_nodes == 1 || !(world.needs_launch || world.may_launch)) return {};
  return world;
}

/// A failure that a second try may not meet: not a wrong flag or file, and not a wish to stop.
bool worth_a_restart(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kOk:
    case ExitCode::kUsage:
    case ExitCode::kData:
    case ExitCode::kInterrupted:
      return false;
    default:
      return true;
  }
}

/// Whether a rank has ended by the signal that asked it to, to which it did not listen yet.
bool ended_by_request(int code) {
  constexpr int kEndedBySignal = 128;
  const int signal = code - kEndedBySignal;
  return std::ranges::find(kEndingSignals, signal) != kEndingSignals.end();
}

struct Attempt {
  int code = 0;
  bool interrupted = false;
  std::string last_words;  // what is printed when no restart follows
};

Attempt run_attempt(const std::vector<std::string>& argv, const Env& env, const LaunchOptions& options, int attempt,
                    const std::string& id, Signals& signals) {
  const World world = node_world(env);
  const int processes = options.num_processes;
  std::optional<HeldPort> own_port;  // until the ranks have ended: nothing takes it before rank 0 does
  if (world.num_nodes == 1) own_port.emplace();
  const int port = own_port ? own_port->number() : world.master_port;
  Agent agent({.program = options.program,
               .node = world.node,
               .num_nodes = world.num_nodes,
               .first_rank = world.node * processes,
               .local_ranks = processes,
               .world_size = world.num_nodes * processes,
               .judge = options.judge,
               .strict = options.guard == Guard::kStrict,
               .begins_later = true,
               .job_secret = job_secret(env),
               .say = [](const std::string& text) { fmt::print(stderr, "{}\n", shown_text(text)); }});
  Launch launch(options, agent, signals);
  for (int local = 0; local < processes; ++local) {
    launch.start(world.node * processes + local, local, argv,
                 rank_variables(env, world, local, processes, port, options.guard == Guard::kOff ? "" : agent.address(),
                                attempt, id));
  }
  agent.begin();
  Attempt done{.code = launch.wait()};
  const auto conclusion = agent.close([&] { (void)launch.interrupted(); });
  done.interrupted = launch.interrupted();
  if (conclusion) {
    done.code = conclusion->exit_code;
    done.last_words = conclusion->text;
  } else if (done.interrupted && launch.ended_by_signal() && (launch.has_killed() || ended_by_request(done.code))) {
    done.code = static_cast<int>(ExitCode::kInterrupted);
    done.last_words = fmt::format("{}: interrupted: its ranks {}", options.program,
                                  launch.has_killed() ? "were killed, and what was not saved is lost"
                                                      : "have ended at once, nothing more was written");
  }
  return done;
}

}  // namespace

int launch_ranks(const std::vector<std::string>& argv, const Env& env, const LaunchOptions& options) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // see end_orphans
  check(!argv.empty() && options.num_processes >= 1, "launch_ranks: a command and at least one process");
  const std::string id = random_token();
  // Before an agent's thread, which must not take them and begins when all ranks are there; and one for all attempts, so that what comes
  // between two stops the next.
  Signals signals;
  for (int attempt = 0;; ++attempt) {
    const Attempt done = run_attempt(argv, env, options, attempt, id, signals);
    const bool again = !done.interrupted && attempt < options.max_restarts && worth_a_restart(done.code);
    if (!done.last_words.empty()) {
      options.conclude ? options.conclude(done.code, done.last_words, again)
                       : fmt::print(stderr, "{}\n", shown_text(done.last_words));
    }
    if (options.interrupted != nullptr) *options.interrupted = done.interrupted;
    if (!again) return done.code;
    fmt::print(stderr, "{}: restart {} of {}\n", options.program, attempt + 1, options.max_restarts);
  }
}

}  // namespace lockstep
