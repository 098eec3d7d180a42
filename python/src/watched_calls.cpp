#include "watched_calls.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "python_site.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"

namespace lockstep::python {
namespace fs = std::filesystem;
namespace {

constexpr auto kLook = std::chrono::milliseconds(250);

/// As torch's own error files are, so that torchrun's report shows it as the cause. One that is there already is the
/// person's own. Source of the form: torch 2.11 distributed/elastic/multiprocessing/errors/error_handler.py.
void write_error_file(const std::string& path, const std::string& message) {
  std::error_code failure;
  if (path.empty() || fs::exists(path, failure)) return;
  const Json extra = {{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr) - 1)}};
  const Json record = {{"message", {{"message", message}, {"extraInfo", extra}}}};
  try {
    write_text(path, record.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception&) {  // the error itself matters more
  }
}

Identity identity_of(const JobPlace& place) {
  Identity identity{.rank = place.rank,
                    .world_size = place.world_size,
                    .local_rank = place.local_rank,
                    .node = place.node,
                    .pid = ::getpid(),
                    .main_thread = ::getpid()};
  const auto real = std::chrono::system_clock::now().time_since_epoch();
  identity.realtime_offset_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(real).count() - steady_ns();
  identity.host = FixedText<64>(host_name());
  return identity;
}

/// What ends a process at once would end it before the others could be asked: Gloo answers a call of another size by
/// std::terminate, and torchrun ends all ranks a moment after the first. The roll call is quicker than these, and ends the
/// process itself when it has found something.
std::atomic<Board*> board_of_signals{nullptr};

void wait_a_moment(int milliseconds) {
  const timespec look{.tv_sec = 0, .tv_nsec = 10'000'000};
  for (int i = 0; i < milliseconds / 10; ++i) ::nanosleep(&look, nullptr);
}

void end_as_it_would(int signal) {
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_abort(int signal) {
  wait_a_moment(2000);
  end_as_it_would(signal);
}

void on_terminate(int signal) {
  wait_a_moment(1000);
  board_of_signals.load()->life.store(Life::kFinished, std::memory_order_release);  // somebody wanted it
  end_as_it_would(signal);
}

void hold_signals(Board& board) {
  board_of_signals.store(&board);
  const auto install = [](int signal, void (*handler)(int)) {
    struct sigaction before = {};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;  // somebody else's
    struct sigaction action = {};
    action.sa_handler = handler;
    ::sigaction(signal, &action, nullptr);
  };
  install(SIGABRT, on_abort);
  install(SIGTERM, on_terminate);
}

}  // namespace

WatchedCalls& WatchedCalls::instance() {
  static auto& one = *new WatchedCalls;
  return one;
}

void WatchedCalls::join(const JobPlace& place) {
  const std::lock_guard lock(mutex_);
  if (member_ != nullptr) return;
  place_ = place;
  pid_ = ::getpid();
  recorder_.add_fact("world size", std::to_string(place.world_size));
  recorder_.add_setting("LOCKSTEP_GUARD", "1");
  recorder_.step_done(0);  // it runs
  recorder_.enter_phase(Phase::kForward, "");
  member_ = std::make_unique<Member>(
      recorder_, MemberOptions{.address = place.agent,
                               .identity = identity_of(place),
                               .grace_seconds = 0.1,  // Gloo cannot be woken up: nobody leaves by himself
                               .before_exit = [this](const Ending& ending) {
                                 write_error_file(place_.error_file, std::string(ending.message.view()));
                                 kill_descendants();
                               }});
  hold_signals(recorder_.board());
  std::thread([this] { look_at_works(); }).detach();
}

WatchedCalls::Watched& WatchedCalls::watched(const std::string& name, int size) {
  const auto [at, is_new] = groups_.try_emplace(name);
  Watched& found = at->second;
  if (is_new && size == place_.world_size && groups_.size() <= Board::kGroups) {
    found.index = recorder_.add_group(name == "0" || name.empty() ? "default" : name);
  }
  return found;
}

std::optional<WatchedCalls::Call> WatchedCalls::enter(const c10d::ProcessGroup& group, const CallSignature& signature) {
  const std::string_view site = site_of_this_thread();
  const std::string name = group.getGroupName();  // may be a person's own class
  const int size = group.getSize();
  const std::lock_guard lock(mutex_);
  if (member_ == nullptr || ::getpid() != pid_) return std::nullopt;  // before it has joined, or a child of it
  Watched& home = watched(name, size);
  ++counts_.calls;
  if (home.index < 0) {
    ++counts_.unwatched;
    return std::nullopt;
  }
  recorder_.stand_at(site);
  return Call{home.index, recorder_.ring(home.index).enter(signature, "", site)};
}

/// The work is not kept, not even weakly: it would keep its tensors.
void WatchedCalls::launched(const Call& call, const c10::intrusive_ptr<c10d::Work>& work) {
  {
    const std::lock_guard lock(mutex_);
    recorder_.set_state(call.group, call.seq, CallState::kLaunched);
    for (auto& [name, group] : groups_) {
      if (group.index == call.group) group.open.emplace(call.seq, Clock::now());
    }
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = work->getFuture();
  } catch (const std::exception&) {  // of a backend that has none
  }
  if (!future) return over(call, false);
  future->addCallback([this, call](c10::ivalue::Future& done) { over(call, done.hasError()); }, /*uses_future=*/false);
}

void WatchedCalls::over(const Call& call, bool broken) {
  const std::lock_guard lock(mutex_);
  if (::getpid() != pid_) return;
  recorder_.set_state(call.group, call.seq, broken ? CallState::kFailed : CallState::kDone);
  recorder_.device_passed(call.group, call.seq);
  for (auto& [name, group] : groups_) {
    if (group.index == call.group) group.open.erase(call.seq);
  }
}

void WatchedCalls::failed(const Call& call) {
  const std::lock_guard lock(mutex_);
  recorder_.set_state(call.group, call.seq, CallState::kFailed);
}

void WatchedCalls::look_at_works() {
  while (true) {
    std::this_thread::sleep_for(kLook);
    look();
  }
}

/// Which call has been open for a while.
void WatchedCalls::look() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, group] : groups_) {
    if (group.open.empty()) continue;
    const auto& [seq, since] = *group.open.begin();
    if (Clock::now() - since >= kLook) recorder_.device_waits(group.index, seq, since);
  }
}

std::string WatchedCalls::enter_phase(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::string before(phase_name(recorder_.phase()));
  for (size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (phase_name(phase) == name && member_ != nullptr) recorder_.enter_phase(phase, site_of_this_thread());
  }
  return before;
}

void WatchedCalls::say_last_words(const std::string& message, const std::string& place, bool secondary, int exit_code) {
  const std::lock_guard lock(mutex_);
  if (!place.empty()) recorder_.stand_at(place);
  recorder_.say_last_words({.code = static_cast<ExitCode>(exit_code), .message = message, .hint = {}}, secondary);
}

void WatchedCalls::wait_in_last_call() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, group] : groups_) {
    if (group.index < 0) continue;
    const auto last = recorder_.ring(group.index).last(1);
    if (last.empty()) continue;
    recorder_.device_waits(group.index, last[0].seq, Clock::time_point(std::chrono::nanoseconds(last[0].entered_ns)));
  }
}

std::optional<std::string> WatchedCalls::await_ending(double seconds) {
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto ending = recorder_.await_ending(patience);
  return ending ? std::make_optional(std::string(ending->message.view())) : std::nullopt;
}

void WatchedCalls::finish(int exit_code) {
  if (member_ == nullptr || ::getpid() != pid_) return;
  recorder_.finish(exit_code);
}

WatchedCalls::Counts WatchedCalls::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void kill_descendants() {
  std::map<pid_t, std::vector<pid_t>> children;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t after = text.rfind(") ");
    if (after == std::string::npos || after + 4 >= text.size()) continue;
    children[std::atoi(text.c_str() + after + 4)].push_back(std::atoi(name.c_str()));
  }
  std::vector<pid_t> open{::getpid()};
  for (size_t i = 0; i < open.size(); ++i) {
    for (const pid_t child : children[open[i]]) open.push_back(child);
  }
  for (size_t i = 1; i < open.size(); ++i) ::kill(open[i], SIGKILL);
}

}  // namespace lockstep::python
