#include "watched_calls.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include "descendants.h"
#include "held_signals.h"
#include "python_site.h"
#include "python_stacks.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lockstep/base/error_file.h"
#include "lockstep/base/json.h"
#include "lockstep/guard/crash_words.h"
#include "lockstep/guard/settings.h"
#include "lockstep/guard/splits.h"
#include "lockstep/guard/structure.h"

namespace lockstep::python {
namespace fs = std::filesystem;
namespace {

constexpr auto kLook = std::chrono::milliseconds(250);
constexpr std::chrono::milliseconds kStrictPatience = std::chrono::hours(24);  // the agent ends what takes too long
constexpr std::chrono::milliseconds kAsyncPatience = std::chrono::seconds(1);
constexpr int64_t kAskNs = 700'000'000;  // for so long a call is open until Python is asked where its thread is

/// Of a rank whose own words are not there already.
void tell_torchrun(const std::string& path, const std::string& message) {
  std::error_code failure;
  if (!path.empty() && !fs::exists(path, failure)) write_error_file(path, message);
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
  groups_.stand_as(place.rank, place.world_size);
  recorder_.add_fact("world size", std::to_string(place.world_size));
  recorder_.add_setting(kWatchedFlag, "1");
  recorder_.enter_phase(Phase::kStart, place.meeting);
  Identity identity = own_identity(place.rank, place.world_size, place.local_rank, place.node);
  identity.main_thread = identity.pid;
  member_ = std::make_unique<Member>(
      recorder_, MemberOptions{.address = place.agent,
                               .identity = identity,
                               .grace_seconds = 0.1,  // Gloo cannot be woken up: nobody leaves by himself
                               .before_exit =
                                   [this](const Ending& ending) {
                                     tell_torchrun(place_.error_file, std::string(ending.message.view()));
                                     kill_descendants();
                                     if (ending.message.view().find(kAborted) != std::string_view::npos)
                                       abort_at_last();
                                   },
                               .own_stack =
                                   [this, thread = place.main_thread] {
                                     if (leaving_) return std::string();
                                     const std::string subject = python_subject();
                                     return subject + (subject.empty() ? "" : "\n") + python_stacks(thread);
                                   }});
  hold_signals(recorder_.board());
  mind_forks();
  joined_ = true;
  std::thread([this] { look_at_works(); }).detach();
}

/// A child has the board in common with its rank, and may destroy the groups that it has inherited, or make some of its own. It is
/// forked while no other thread holds the mutex: nobody would ever give it back there.
void WatchedCalls::mind_forks() {
  [[maybe_unused]] static const int minds =
      ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] {
                         instance().joined_ = false;
                         instance().forked_ = true;
                         instance().mutex_.unlock();
                       });
}

void WatchedCalls::begin() {
  const std::lock_guard lock(mutex_);
  if (member_ == nullptr) return;
  if (place_.ends_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // as long as the thread lives that asks for it
  recorder_.step_done(0);
  recorder_.enter_phase(Phase::kRun, "");
}

int WatchedCalls::tree_port() {
  const std::lock_guard lock(mutex_);
  return member_ == nullptr ? 0 : member_->tree_port();
}

void WatchedCalls::tell_salt(const std::string& salt) {
  const std::lock_guard lock(mutex_);
  if (member_ != nullptr) member_->tell_salt(salt);
}

void WatchedCalls::tell_parent(const std::string& host, int port) {
  const std::lock_guard lock(mutex_);
  if (member_ != nullptr) member_->tell_parent(host, port);
}

void WatchedCalls::tell_ended(int rank, int exit_code) {
  const std::lock_guard lock(mutex_);
  if (member_ != nullptr) member_->tell_ended(rank, exit_code);
}

bool WatchedCalls::joined() const { return joined_.load(std::memory_order_acquire); }

void WatchedCalls::learn_group(const std::string& name, const std::string& title, const std::vector<int>& ranks,
                               bool apart) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  groups_.learn(name, title, ranks, apart);
}

void WatchedCalls::set_patience(const std::string& name, double seconds) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  groups_.set_patience(name, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

namespace {

thread_local std::string label_of_thread;
thread_local bool blocks_thread = false;
thread_local std::optional<WatchedCalls::Call> blocking_call;

}  // namespace

bool WatchedCalls::block(bool blocks) {
  if (!blocks && blocking_call) over(*std::exchange(blocking_call, std::nullopt), false);
  return std::exchange(blocks_thread, blocks);
}

std::string WatchedCalls::label(const std::string& text) { return std::exchange(label_of_thread, text); }

void WatchedCalls::show_structure(const std::string& label, const std::string& json) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  recorder_.show_structure(label, json);
}

/// The first time the model is asked where, on the thread that makes the call: while it is here, nobody writes the gradients
/// that it sends, and no other thread may read them.
void WatchedCalls::look_for_nan() {
  if (leaving_ || noted_nan_.exchange(true)) return;
  const std::string where = python_nan();
  if (where.empty()) return;
  const std::lock_guard lock(mutex_);
  recorder_.show_structure(kNanRemark, Json({{"label", kNanRemark}, {"nodes", Json::array()}, {"note", where}})
                                           .dump(-1, ' ', false, Json::error_handler_t::replace));
}

void WatchedCalls::show_splits(const Call& call, const std::string& group, const Made& made) {
  const std::vector<int>& ranks = groups_.ranks_of(group);
  if (ranks.size() != made.sends.size() || ranks.size() != made.receives.size() || ranks.size() > Splits::kMost) return;
  const auto title = recorder_.board().groups[static_cast<size_t>(call.group)].name.read_any();
  const Splits splits{place_.rank, std::string(title.view()), call.seq, ranks, made.sends, made.receives};
  recorder_.show_structure(splits_label(splits), splits_text(splits));
}

std::optional<WatchedCalls::Call> WatchedCalls::enter(const c10d::ProcessGroup& group, const Made& made) {
  if (!joined()) return std::nullopt;
  let_go_of_passed();
  const std::string_view site =
      leaving_ ? "" : site_of_this_thread();  // by then Python lets the states of its threads go
  const int64_t now = steady_ns();
  const std::string name = group.getGroupName();  // may be a person's own class
  const int size = group.getSize();
  const bool pair = made.signature.between_two();
  if (!is_main_thread()) others_call_ = true;
  std::optional<Call> call;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.calls;
    counts_.bytes += made.bytes;
    const auto [index, peer] = groups_.of({name, size, made.signature.op, made.peer, made.tag, made.on_gpu});
    if (index < 0) {
      ++counts_.unwatched;
      return std::nullopt;
    }
    recorder_.stand_at(site, now);
    CallSignature signature = made.signature;
    if (pair) signature.root = peer;
    call = Call{index, recorder_.ring(index).enter(signature, label_of_thread, site, 0, now), now};
    if (!made.sends.empty()) show_splits(*call, name, made);
    if (made.has_nan) recorder_.ring(call->group).set_has_nan(call->seq);
  }
  if (made.has_nan) look_for_nan();
  // A pair cannot wait: two who first send and then receive would wait for each other. And whose thread goes on may rightly
  // call its groups in another order than others do.
  if (recorder_.strict() && !pair) {
    recorder_.await_clearance(call->group, call->seq, made.is_async.value_or(false) ? kAsyncPatience : kStrictPatience);
    if (recorder_.has_ending()) std::this_thread::sleep_for(kStrictPatience);  // the roll call ends this process
  }
  return call;
}

namespace {

/// Null: it is part of a batch that has one, or its backend has none. Of such a kind of work no other is asked again: what it throws
/// carries a stack, which costs more than the call. Works of Python's are of one kind and many minds.
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& work) {
  static std::atomic<const std::type_info*> has_none{nullptr};
  const std::type_info& kind = typeid(work);
  if (&kind == has_none.load(std::memory_order_relaxed)) return nullptr;
  try {
    return work.getFuture();
  } catch (const std::exception&) {
    if (std::string_view(kind.name()).find("PyWork") == std::string_view::npos) has_none = &kind;
    return nullptr;
  }
}

}  // namespace

/// A work that tells when it is through is not kept, not even weakly: it would keep its tensors.
void WatchedCalls::launched(const Call& call, const c10::intrusive_ptr<c10d::Work>& work, bool waits) {
  const auto future = work ? future_of(*work) : nullptr;
  if (work) silent_.take(work.get());  // a new one has this address
  if (future && future->completed()) return over(call, future->hasError());
  {
    const std::lock_guard lock(mutex_);
    recorder_.set_state(call.group, call.seq, CallState::kLaunched);
    if ((waits || blocks_thread) && is_main_thread()) main_waits_ = call;
  }
  if (!future && blocks_thread) {
    blocking_call = call;
    return;
  }
  if (!future && work && waits) return awaited_.keep(call, work);
  if (!future && work) silent_.note(work.get(), call);
  if (!future) return over(call, false);
  future->addCallback([this, call](c10::ivalue::Future& done) { over(call, done.hasError()); }, /*uses_future=*/false);
}

std::optional<WatchedCalls::Call> WatchedCalls::wait_begins(const void* work) {
  auto call = silent_.take(work);
  if (!call) return std::nullopt;
  call->entered_ns = steady_ns();
  const std::lock_guard lock(mutex_);
  const auto group = static_cast<size_t>(call->group);
  if (!recorder_.ring(call->group).find(call->seq)) return std::nullopt;  // long ago
  recorder_.set_state(call->group, call->seq, CallState::kLaunched);
  through_[group] = std::min(through_[group], call->seq - 1);
  awaited_late_.push_back(*call);
  if (is_main_thread()) main_waits_ = call;
  return call;
}

/// In the order of all groups that are made, which gives them their names. It concerns its members alone: torch lets the others go on.
std::optional<WatchedCalls::Call> WatchedCalls::make_group(const std::vector<int>& ranks) {
  if (!joined()) return std::nullopt;
  const std::string_view site = site_of_this_thread();
  RankSet members;
  for (const int rank : ranks) members.add(rank);
  const std::string label = members.phrase();
  const std::lock_guard lock(mutex_);
  const int index = groups_.of_making(members);
  if (index < 0) return std::nullopt;
  CallSignature signature{.op = Op::kNewGroup};
  signature.has_splits = 1;
  signature.splits = hash_bytes(members.text());  // a label is cut
  const int64_t now = steady_ns();
  const Call call{index, recorder_.ring(index).enter(signature, label, site, 0, now), now};
  if (members.contains(place_.rank)) {
    recorder_.device_waits(call.group, call.seq, Clock::time_point(std::chrono::nanoseconds(now)), !others_call_);
  }
  return call;
}

void WatchedCalls::let_go_of_passed() {
  for (const auto& [call, broken] : awaited_.take_passed()) over(call, broken);
}

void WatchedCalls::over(const Call& call, bool broken) {
  const int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  recorder_.ring(call.group).set_over(call.seq, broken, now);
  recorder_.device_passed(call.group, call.seq);
  if (main_waits_ && main_waits_->is(call)) main_waits_.reset();
  if (!awaited_late_.empty()) std::erase_if(awaited_late_, [&](const Call& one) { return one.is(call); });
  auto& total = recorder_.board().calls_ns;  // nobody else writes it
  total.store(total.load(std::memory_order_relaxed) + now - call.entered_ns, std::memory_order_relaxed);
}

void WatchedCalls::look_at_works() {
  while (true) {
    std::this_thread::sleep_for(kLook);
    try {
      let_go_of_passed();
      look();
    } catch (const std::exception&) {  // no memory to look with: a job is never worse off
    }
  }
}

bool WatchedCalls::is_main_thread() const { return reinterpret_cast<uint64_t>(::pthread_self()) == place_.main_thread; }

/// Of each group the first that is launched, not through, and has been so for a while.
std::vector<WatchedCalls::Call> WatchedCalls::open_calls() {
  const std::lock_guard lock(mutex_);
  std::vector<Call> open;
  for (int index = 0; index < groups_.count(); ++index) {
    const auto call = recorder_.ring(index).first_launched(through_[static_cast<size_t>(index)]);
    if (!call) continue;
    Call one{index, call->seq, call->entered_ns};
    const auto late = std::ranges::find_if(awaited_late_, [&](const Call& other) { return other.is(one); });
    if (late != awaited_late_.end()) one = *late;
    if (Clock::now() - Clock::time_point(std::chrono::nanoseconds(one.entered_ns)) >= kLook) open.push_back(one);
  }
  return open;
}

/// Whether this rank can do nothing until the call is through: its main thread is asleep there, in torch, there is no other
/// call that it can wait for, and no other thread makes calls.
bool WatchedCalls::main_stands_in(const Call& call, size_t num_open) {
  if (others_call_ || leaving_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (main_waits_ && !main_waits_->is(call)) return false;
    if (!main_waits_ && num_open > 1) return false;
  }
  return steady_ns() - call.entered_ns >= kAskNs && main_thread_sleeps() && python_waits_in_torch();
}

void WatchedCalls::look() {
  const auto open = open_calls();
  for (const auto& call : open) {
    const bool stands = main_stands_in(call, open.size());
    const std::lock_guard lock(mutex_);
    if (const auto now = recorder_.ring(call.group).find(call.seq); !now || now->over()) continue;
    recorder_.device_waits(call.group, call.seq, Clock::time_point(std::chrono::nanoseconds(call.entered_ns)), stands);
  }
}

std::string WatchedCalls::enter_phase(const std::string& name) {
  if (!joined()) return name;
  const std::string_view site = site_of_this_thread();
  const std::lock_guard lock(mutex_);
  const std::string before(phase_name(recorder_.phase()));
  for (size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (phase_name(phase) == name) recorder_.enter_phase(phase, site);
  }
  return before;
}

void WatchedCalls::stand_at(const std::string& place) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  recorder_.stand_at(place);
}

void WatchedCalls::leave_group(const std::string& name) {
  if (forked_) return;
  const std::lock_guard lock(mutex_);
  groups_.leave(name);
}

WatchedCalls::Counts WatchedCalls::counts() {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  const Json times = parse_json_or_discard(std::string(recorder_.board().calls_ns_of_all.read_any().view()));
  if (!times.is_object()) return counts;
  for (const auto& [rank, ns] : times.items()) {
    if (ns.is_number_integer()) counts.seconds_of_ranks[std::atoi(rank.c_str())] = ns.get<double>() * 1e-9;
  }
  return counts;
}

}  // namespace lockstep::python
