#include "lockstep/guard/local_ranks.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/guard/frames.h"
#include "lockstep/guard/unix_socket.h"

namespace lockstep {
namespace {

constexpr auto kGreeting = std::chrono::seconds(2);               // for a stranger to say who it is
constexpr size_t kMaxStrangers = 256, kMaxWords = 64;             // words: of a rank, at once
constexpr auto kEndComes = std::chrono::milliseconds(20);         // behind the end of the connection
constexpr auto kParentAsks = std::chrono::seconds(1);             // after an end: what comes later is another process
constexpr auto kLookPause = std::chrono::milliseconds(100);       // between looks at /proc
constexpr auto kLongestGap = std::chrono::milliseconds(1000);     // the agent itself was stopped for longer: start anew
constexpr auto kComparisonWait = std::chrono::milliseconds(250);  // for ranks that finish before others

double seconds_from(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

/// For how long the main thread of a process has run; 0 where the kernel does not tell.
int64_t running_ns(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/schedstat", pid));
  int64_t ns = 0;
  in >> ns;
  return ns;
}

}  // namespace

LocalRanks::LocalRanks(int node, const std::string& name)
    : name_(name.empty() ? "lockstep-" + random_token() : name), node_(node), host_(host_name()) {
  listener_ = listen_on_name(name_);
}

LocalRanks::~LocalRanks() {
  ::close(listener_);
  for (const auto& stranger : strangers_) ::close(stranger.socket);
  for (auto& [rank, local] : ranks_) {
    for (const int fd : {local.socket, local.process_fd}) {
      if (fd >= 0) ::close(fd);
    }
  }
}

void LocalRanks::expect(int rank, int local_rank, int world_size, pid_t pid) {
  Local& local = ranks_[rank];
  local.local_rank = local_rank;
  local.world_size = world_size;
  if (pid > 0) local.pid = pid;
}

void LocalRanks::ended(int rank, ProcessEnd end) {
  end.out_of_memory = end.signal == SIGKILL && out_of_memory_kills() > out_of_memory_kills_;
  ranks_[rank].end = end;
  ranks_[rank].left = true;
}

void LocalRanks::ended_before_joining(int rank, int exit_code) {
  const auto known = ranks_.find(rank);
  if (known == ranks_.end() || known->second.board != nullptr || known->second.left) return;
  ended(rank, {.known = true, .exit_code = exit_code});
}

void LocalRanks::adopt(const Identity& identity, std::shared_ptr<BoardMemory> board) {
  Local& local = ranks_[static_cast<int>(identity.rank)];
  local.board = std::move(board);
  local.adopted = true;
}

void LocalRanks::set_welcome(bool strict, int tree_port) {
  strict_ = strict;
  tree_port_ = tree_port;
}

std::vector<int> LocalRanks::descriptors() const {
  std::vector<int> all{listener_};
  for (const auto& [rank, local] : ranks_) {
    if (local.socket >= 0) all.push_back(local.socket);
  }
  return all;
}

void LocalRanks::pump() {
  for (pollfd knock{listener_, POLLIN, 0}; strangers_.size() < kMaxStrangers && ::poll(&knock, 1, 0) > 0;) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) break;
    strangers_.push_back({.socket = socket});
  }
  hear_strangers();
  for (auto& [rank, local] : ranks_) {
    listen_to(local);
    if (!local.adopted) look(local);
  }
  if (!all_stopped()) return;
  for (auto& [rank, local] : ranks_) local.stopped_since = Clock::now();
}

/// A job that is suspended as a whole is let run rank by rank: none is late before another one runs. A rank that is alone here may
/// be the one that others wait for.
bool LocalRanks::all_stopped() const {
  size_t live = 0;
  for (const auto& [rank, local] : ranks_) {
    if (local.left || local.gone) continue;
    if (!local.stopped) return false;
    ++live;
  }
  return live > 1;
}

/// Nobody waits for a greeting: who is slow with it is asked again at the next turn.
void LocalRanks::hear_strangers() {
  std::vector<Stranger> waiting;
  for (const auto& stranger : strangers_) {
    pollfd ready{stranger.socket, POLLIN, 0};
    const bool spoke = ::poll(&ready, 1, 0) > 0;
    if (!spoke && Clock::now() - stranger.came < kGreeting) {
      waiting.push_back(stranger);
    } else if (auto packet = spoke ? receive_packet(stranger.socket, 0) : std::nullopt) {
      let_in(stranger.socket, *packet);
    } else {
      ::close(stranger.socket);
    }
  }
  strangers_ = std::move(waiting);
}

void LocalRanks::let_in(int socket, Packet& packet) {
  const auto [pid, own_user] = peer_of(socket);
  const auto refuse = [&](std::string_view why) {
    send_packet(socket, Json({{"refused", std::string(why)}}).dump());
    if (packet.descriptor >= 0) ::close(packet.descriptor);
    ::close(socket);
  };
  if (!own_user) return refuse("another user's process");
  const Json greeting = parse_json_or_discard(packet.text);
  const bool whole = greeting.is_object() && greeting.contains("rank") && greeting["rank"].is_number_integer();
  if (!whole) return refuse("the greeting names no rank");
  const int64_t rank = greeting["rank"].get<int64_t>();
  if (rank < 0 || rank > kMaxRanks) return refuse("there is no such rank");
  const auto known = ranks_.find(static_cast<int>(rank));
  if (known != ranks_.end() && known->second.board != nullptr) return refuse("this rank has joined already");
  auto board = packet.descriptor >= 0 ? BoardMemory::map(std::exchange(packet.descriptor, -1)) : nullptr;
  if (board == nullptr) return refuse("no board of this version");
  // Which ranks are of this node is a guess before they come: those that are dealt to nodes in turn are 1 and 3, not 1 and 2.
  if (known == ranks_.end()) {
    const int64_t place = board->board().identity.read_any().local_rank;
    std::erase_if(ranks_, [&](const auto& one) {
      return one.second.board == nullptr && one.second.pid == 0 && one.second.local_rank == place;
    });
  }
  Local& local = ranks_[static_cast<int>(rank)];
  local.board = std::move(board);
  local.socket = socket;
  local.pid = pid;
  local.process_fd = open_process(pid);
  local.gone = local.left = false;
  send_packet(socket, Json({{"welcome", true}, {"strict", strict_}, {"tree_port", tree_port_}}).dump());
}

/// A process that ends closes its files a moment before its parent may ask how it ended: whoever looks first learns it.
void await_end(pid_t pid) {
  const Deadline deadline(kEndComes);
  while (pid > 0 && !deadline.passed()) {
    const ProcessState state = look_at_process(pid, 0).state;
    if (state == ProcessState::kGone) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The end of the connection is the end of the process, seen at once and also of processes that are not our children.
void LocalRanks::listen_to(Local& local) {
  for (size_t words = 0; local.socket >= 0 && words < kMaxWords; ++words) {
    pollfd wait{local.socket, POLLIN | POLLRDHUP, 0};
    if (::poll(&wait, 1, 0) <= 0) return;
    if (const auto packet = receive_packet(local.socket, 0)) {
      if (packet->descriptor >= 0) ::close(packet->descriptor);
      words_.push_back(packet->text);
      continue;
    }
    ::close(local.socket);
    local.socket = -1;
    local.left = true;
    if (!local.adopted) await_end(local.pid);
  }
}

/// Of a process whose parent is somebody else: between its end and the moment at which that parent asks, or later, as the kernel has it. Those
/// that are asked to end by a signal do not say who wanted it.
void LocalRanks::learn_end(Local& local) const {
  auto status = status_of_ended(local.pid);
  if (!status) status = status_of_reaped(local.process_fd);
  if (!status) return;
  const int signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : 0;
  if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) return;
  local.end = {.known = true, .exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 0, .signal = signal};
  local.end.out_of_memory = signal == SIGKILL && out_of_memory_kills() > out_of_memory_kills_;
}

void LocalRanks::look(Local& local) {
  const auto now = Clock::now();
  const bool proc_due = now - local.looked >= kLookPause;
  if (proc_due && local.pid > 0 && !local.left) {
    const bool slept = local.looked != Clock::time_point{} && now - local.looked > kLongestGap;
    // One that is let run for a moment between looks (cpulimit does so) is slow, and not stopped.
    const int64_t ran_ns = running_ns(local.pid);
    if (slept || ran_ns != local.ran_ns) local.stopped = false;
    local.ran_ns = ran_ns;
    local.looked = now;
    const ProcessLook before = std::exchange(local.process, look_at_process(local.pid, 0));
    if (local.process.resident_bytes == 0) {  // ended: what it held last is what one wants to know
      local.process.resident_bytes = before.resident_bytes;
      local.process.peak_resident_bytes = before.peak_resident_bytes;
    }
  }
  if (local.left) local.process.state = ProcessState::kGone;
  const auto track = [now](bool holds, bool& flag, Clock::time_point& since) {
    if (holds && !flag) since = now;
    flag = holds;
  };
  track(local.process.state == ProcessState::kStopped, local.stopped, local.stopped_since);
  track(local.process.state == ProcessState::kGone, local.gone, local.gone_since);
  if (local.gone && !local.end.known && local.pid > 0 && now - local.gone_since < kParentAsks) learn_end(local);
  const bool finishing = local.board != nullptr && local.board->board().life.load() == Life::kFinishing;
  track(finishing, local.finishing, local.finishing_since);
}

RankReport LocalRanks::report(int rank, const Local& local, size_t tail) const {
  RankReport report;
  if (local.board != nullptr) report = read_board(local.board->board(), tail);
  report.rank = rank;
  report.node = node_;
  if (report.host.empty()) report.host = host_;
  if (local.board == nullptr) {
    report.local_rank = local.local_rank;
    report.world_size = local.world_size;
  }
  if (!local.adopted) report.pid = local.pid;
  report.process = local.process;
  report.end = local.end;
  report.stopped_seconds = local.stopped ? seconds_from(local.stopped_since) : 0;
  report.gone_seconds = local.gone ? seconds_from(local.gone_since) : 0;
  return report;
}

size_t LocalRanks::num_joined() const {
  return static_cast<size_t>(
      std::ranges::count_if(ranks_, [](const auto& one) { return one.second.board != nullptr; }));
}

bool LocalRanks::all_gone() const {
  return any_joined() && std::all_of(ranks_.begin(), ranks_.end(),
                                     [](const auto& one) { return one.second.board == nullptr || one.second.left; });
}

Census LocalRanks::census(size_t tail) const {
  Census census;
  for (const auto& [rank, local] : ranks_) census.add(report(rank, local, tail));
  return census;
}

std::vector<RankReport> LocalRanks::reports(size_t tail) const {
  std::vector<RankReport> all;
  for (const auto& [rank, local] : ranks_) all.push_back(report(rank, local, tail));
  return all;
}

void LocalRanks::observe_pace(Straggling& straggling, Clock::time_point now) const {
  for (const auto& [rank, local] : ranks_) {
    if (local.board != nullptr) straggling.observe(rank, local.board->board().pace.read_any(), now);
  }
}

bool LocalRanks::suspicious(double wait_seconds) const {
  const int64_t now = steady_ns();
  const auto one_is = [&](const Local& local) {
    if (local.stopped || (local.gone && (local.board == nullptr || local.board->board().life != Life::kFinished)))
      return true;
    if (local.board == nullptr) return false;
    const Board& board = local.board->board();
    if (board.aborts_since_ns != 0 || board.asked_since_ns != 0) return true;
    if (board.life == Life::kFailing || board.life == Life::kFinishing || board.life == Life::kFinished) return true;
    return std::ranges::any_of(board.used_groups(), [&](const Group& group) {
      return group.waiting_seq.load(std::memory_order_acquire) > 0 &&
             static_cast<double>(now - bounded(group.waiting_since_ns.load(std::memory_order_relaxed))) * 1e-9 >
                 wait_seconds;
    });
  };
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) { return one_is(entry.second); });
}

void LocalRanks::tell_ending(const Ending& ending) {
  for (auto& [rank, local] : ranks_) {
    if (local.board == nullptr) continue;
    Board& board = local.board->board();
    board.ending.write(ending);
    board.has_ending.store(1, std::memory_order_release);
    board.bell.fetch_add(1, std::memory_order_acq_rel);
    wake_all(board.bell);
  }
}

void LocalRanks::tell_call_times() {
  Json times = Json::object();
  for (const auto& [rank, local] : ranks_) {
    if (local.board != nullptr)
      times[std::to_string(rank)] = local.board->board().calls_ns.load(std::memory_order_relaxed);
  }
  const FixedText<4096> text(times.dump());
  for (auto& [rank, local] : ranks_) {
    if (local.board != nullptr) local.board->board().calls_ns_of_all.write(text);
  }
}

void LocalRanks::want_stacks(const RankSet& ranks) {
  for (auto& [rank, local] : ranks_) {
    if (local.board == nullptr || !ranks.contains(rank)) continue;
    Board& board = local.board->board();
    board.stack_wanted.fetch_add(1, std::memory_order_acq_rel);
    board.bell.fetch_add(1, std::memory_order_acq_rel);
    wake_all(board.bell);
  }
}

void LocalRanks::fetch_stacks(Clock::duration patience) {
  RankSet able;
  for (const auto& [rank, local] : ranks_) {
    if (local.board != nullptr && !local.left && !local.stopped && !local.adopted) able.add(rank);
  }
  want_stacks(able);
  const Deadline deadline(patience);
  const auto answered = [&](int rank) {
    const Board& board = ranks_.at(rank).board->board();
    return board.stack_given.load(std::memory_order_acquire) >= board.stack_wanted.load(std::memory_order_relaxed);
  };
  const auto ranks = able.ranks();
  while (!deadline.passed() && !std::all_of(ranks.begin(), ranks.end(), answered)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void LocalRanks::release_finished() {
  const bool all = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    const Local& local = entry.second;
    return local.gone || (local.board != nullptr && local.board->board().life >= Life::kFailing);
  });
  for (auto& [rank, local] : ranks_) {
    if (!local.finishing || (!all && Clock::now() - local.finishing_since < kComparisonWait)) continue;
    Board& board = local.board->board();
    if (board.released.exchange(1) != 0) continue;
    board.bell.fetch_add(1, std::memory_order_acq_rel);
    wake_all(board.bell);
  }
}

void LocalRanks::kill(int signal) const {
  for (const auto& [rank, local] : ranks_) {
    if (local.pid > 0 && !local.left && !local.adopted) ::kill(local.pid, signal);
  }
}

void LocalRanks::kill_deaf() const {
  for (const auto& [rank, local] : ranks_) {
    const bool deaf = local.stopped || local.board == nullptr;
    if (local.pid > 0 && !local.left && !local.adopted && deaf) ::kill(local.pid, SIGKILL);
  }
}

}  // namespace lockstep
