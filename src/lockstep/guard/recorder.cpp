#include "lockstep/guard/recorder.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/guard/report.h"
#include "lockstep/guard/splits.h"
#include "lockstep/guard/structure.h"

namespace lockstep {
namespace {

constexpr auto kComparison = std::chrono::milliseconds(500);

int64_t ns_of(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

PhaseScope::PhaseScope(Recorder& recorder, Phase phase, std::string_view detail)
    : recorder_(recorder), phase_(recorder.phase()), detail_(recorder.detail_) {
  recorder_.enter_phase(phase, detail);
}

PhaseScope::~PhaseScope() {
  if (std::uncaught_exceptions() <= exceptions_) recorder_.enter_phase(phase_, detail_);
}

Recorder::Recorder(std::shared_ptr<BoardMemory> memory)
    : memory_(std::move(memory)), phase_since_ns_(steady_ns()), step_since_ns_(phase_since_ns_) {
  board().place.write({.since_ns = phase_since_ns_});
}

int Recorder::add_group(std::string_view name, const RankSet& members) {
  if (num_groups_ == static_cast<int>(Board::kGroups)) {
    throw Error(ExitCode::kInternal, fmt::format("group {} of ranks: a board has room for {}", name, Board::kGroups));
  }
  name_group(num_groups_, name, members);
  board().num_groups.store(static_cast<uint32_t>(++num_groups_), std::memory_order_release);
  return num_groups_ - 1;
}

void Recorder::name_group(int group, std::string_view name, const RankSet& members) {
  set_members(group, members);
  Group& home = board().groups[static_cast<size_t>(group)];
  home.name.write(FixedText<96>(name));
  home.id.store(hash_bytes(name) ^ hash_bytes(members.text()) * 3, std::memory_order_release);
}

bool Recorder::is_free(int group) const {
  const Group& home = board().groups[static_cast<size_t>(group)];
  return home.left.load(std::memory_order_relaxed) != 0 && !home.ring.any_open();
}

/// Whoever reads it meanwhile finds it closed, or under another id than when he began: see read_board().
void Recorder::replace_group(int group, std::string_view name, const RankSet& members) {
  Group& home = board().groups[static_cast<size_t>(group)];
  home.closed.store(1, std::memory_order_release);
  home.ring.restart();
  home.waiting_seq.store(0, std::memory_order_release);
  home.stands.store(0, std::memory_order_release);
  home.cleared.store(0, std::memory_order_release);
  home.left.store(0, std::memory_order_release);
  home.patience_ns.store(0, std::memory_order_release);
  name_group(group, name, members);
  home.closed.store(0, std::memory_order_release);
}

void Recorder::set_members(int group, const RankSet& members) {
  Members bits;
  for (const int rank : members.ranks()) {
    if (rank >= static_cast<int>(Members::kMost)) {
      throw Error(ExitCode::kInternal,
                  fmt::format("a group of ranks: found rank {}, expected less than {}", rank, Members::kMost));
    }
    bits.add(rank);
  }
  Group& home = board().groups[static_cast<size_t>(group)];
  home.members.write(bits);
  home.num_members.store(static_cast<uint32_t>(members.size()), std::memory_order_release);
}

/// "residency.cpp:45". Call sites are few: each is written once.
std::string_view Recorder::site_text(const std::source_location& site) {
  const auto spot = (reinterpret_cast<uintptr_t>(site.file_name()) / 16 + site.line() * 7) % sites_.size();
  Site& known = sites_[spot];
  if (known.file != site.file_name() || known.line != site.line()) {
    const std::string_view path(site.file_name());
    known = {site.file_name(), site.line(), fmt::format("{}:{}", path.substr(path.rfind('/') + 1), site.line())};
  }
  return known.text;
}

uint64_t Recorder::enter(int group, const CallSignature& signature, std::string_view label,
                         const std::source_location& site) {
  return ring(group).enter(signature, label, site_text(site), board().step.load(std::memory_order_relaxed));
}

void Recorder::wait_begins(int group, uint64_t seq, Clock::time_point now) {
  Group& home = board().groups[static_cast<size_t>(group)];
  home.waiting_since_ns.store(ns_of(now.time_since_epoch()), std::memory_order_relaxed);
  home.stands.store(1, std::memory_order_relaxed);
  home.waiting_seq.store(seq, std::memory_order_release);
}

void Recorder::wait_ends(int group, Clock::duration waited) {
  board().groups[static_cast<size_t>(group)].waiting_seq.store(0, std::memory_order_release);
  waited_in_phase_ns_ += ns_of(waited);
}

void Recorder::device_waits(int group, uint64_t seq, Clock::time_point since, bool stands) {
  Group& home = board().groups[static_cast<size_t>(group)];
  uint64_t nobody = 0;
  if (const uint64_t told = home.waiting_seq.load(std::memory_order_relaxed); told == nobody || told == seq) {
    home.stands.store(stands ? 1 : 0, std::memory_order_relaxed);
  }
  if (home.waiting_seq.load(std::memory_order_relaxed) != nobody) return;  // the thread waits itself, or this was told
  home.waiting_since_ns.store(ns_of(since.time_since_epoch()), std::memory_order_relaxed);
  home.waiting_seq.compare_exchange_strong(nobody, seq, std::memory_order_release);
}

void Recorder::device_passed(int group, uint64_t seq) {
  auto& waiting = board().groups[static_cast<size_t>(group)].waiting_seq;
  uint64_t told = seq;
  if (waiting.load(std::memory_order_relaxed) == seq) {  // seldom
    waiting.compare_exchange_strong(told, 0, std::memory_order_release);
  }
}

void Recorder::enter_phase(Phase phase, std::string_view detail) {
  const int64_t now = steady_ns();
  const auto before = static_cast<size_t>(this->phase());
  pace_.phase_ns[std::min(before, kPhases - 1)] += now - phase_since_ns_ - waited_in_phase_ns_;
  pace_.waiting_ns += waited_in_phase_ns_;
  waited_in_phase_ns_ = 0;
  phase_since_ns_ = now;
  detail_ = detail;
  board().phase.store(phase, std::memory_order_relaxed);
  board().place.write({.detail = FixedText<192>(detail), .since_ns = now});
}

void Recorder::stand_at(std::string_view detail, int64_t now_ns) {
  if (detail == detail_) {
    const auto since = static_cast<uint64_t>(now_ns);
    return board().place.write_words(&since, offsetof(Place, since_ns) / sizeof(uint64_t), 1);
  }
  detail_ = detail;
  board().place.write({.detail = FixedText<192>(detail), .since_ns = now_ns});
}

void Recorder::step_done(int64_t step) {
  enter_phase(phase(), std::string(detail_));  // closes the account of the phase so far
  pace_.steps += 1;
  pace_.step_ns += phase_since_ns_ - step_since_ns_;
  step_since_ns_ = phase_since_ns_;
  board().pace.write(pace_);
  board().step.store(step, std::memory_order_relaxed);
  if (board().life.load(std::memory_order_relaxed) == Life::kStarting) board().life.store(Life::kRunning);
}

void Recorder::say_last_words(const Failure& failure, bool secondary) {
  if (has_last_words()) return;
  std::string place(phase_text(phase()));
  if (!detail_.empty()) place += fmt::format(" ({})", detail_);
  const int64_t step = board().step.load(std::memory_order_relaxed);
  if (step > 0) place += fmt::format(" after step {}", step);
  board().last_words.write({.exit_code = static_cast<int>(failure.code),
                            .at_ns = steady_ns(),
                            .secondary = secondary ? 1U : 0U,
                            .shared = failure.shared ? 1U : 0U,
                            .message = FixedText<4096>(failure.message),
                            .hint = FixedText<1024>(failure.hint),
                            .place = FixedText<256>(place)});
  board().life.store(Life::kFailing, std::memory_order_release);
}

void Recorder::add_fact(const std::string& name, const std::string& value) {
  const auto before = facts_.find(name);
  if (before != facts_.end() && before->second != value) facts_[kRunFact] = std::to_string(++run_);
  facts_[name] = value;
  tell_facts();
}

void Recorder::show_structure(const std::string& label, std::string_view json) {
  if (const auto shown = std::ranges::find(structures_, label); shown != structures_.end()) {
    const auto slot = static_cast<size_t>(shown - structures_.begin());
    if (label == kModulesRemark || label.starts_with(kSplits))
      board().structures[slot].write(FixedText<8192>(json));  // of another pass, or call
    return;
  }
  structures_.resize(board().structures.size());
  structures_[next_structure_] = label;
  board().structures[next_structure_].write(FixedText<8192>(json));
  next_structure_ = (next_structure_ + 1) % structures_.size();
}

void Recorder::add_setting(const std::string& name, const std::string& value) {
  settings_[name] = value;
  tell_facts();
}

/// A board has so much room; what is compared must be whole, so settings give way.
void Recorder::tell_facts() {
  constexpr size_t kRoom = 4096;
  Json json(facts_);
  if (!settings_.empty()) json["settings"] = settings_;
  const auto text_of = [](const Json& one) { return one.dump(-1, ' ', false, Json::error_handler_t::replace); };
  std::string text = text_of(json);
  if (text.size() >= kRoom) text = text_of(Json(facts_));
  board().facts.write(FixedText<kRoom>(text));
}

void Recorder::set_watched(bool strict) {
  watched_ = true;
  strict_ = strict;
}

void Recorder::await_clearance(int group, uint64_t seq, Clock::duration patience) const {
  const Group& home = board().groups[static_cast<size_t>(group)];
  const Deadline deadline(patience);
  while (!has_ending() && !deadline.passed()) {
    const uint32_t seen = board().bell.load(std::memory_order_acquire);
    if (home.cleared.load(std::memory_order_acquire) >= seq || has_ending()) return;
    wait_for_change(board().bell, seen, std::min<Clock::duration>(deadline.left(), std::chrono::milliseconds(200)));
  }
}

std::optional<Ending> Recorder::await_ending(Clock::duration patience) const {
  if (!watched_) return std::nullopt;
  const Deadline deadline(patience);
  while (true) {
    const uint32_t seen = board().bell.load(std::memory_order_acquire);
    if (has_ending()) return board().ending.read_any();
    if (deadline.passed()) return std::nullopt;
    wait_for_change(board().bell, seen, deadline.left());
  }
}

void Recorder::say_stopped(const std::string& message) {
  if (has_last_words()) return;
  board().last_words.write(
      {.exit_code = static_cast<int>(ExitCode::kInterrupted),
       .at_ns = steady_ns(),
       .message = FixedText<4096>(message),
       .place = FixedText<256>(phase_text(phase()))});  // where exactly the main thread alone knows
  board().life.store(Life::kFailing, std::memory_order_release);
}

void Recorder::finish(int exit_code) {
  if (phase() != Phase::kEnd) enter_phase(Phase::kEnd);  // else it has said how
  board().exit_code.store(exit_code);
  board().life.store(Life::kFinishing, std::memory_order_release);
  const Deadline deadline(kComparison);
  while (watched_ && !has_ending() && !deadline.passed()) {
    const uint32_t seen = board().bell.load(std::memory_order_acquire);
    if (board().released.load(std::memory_order_acquire) != 0) break;
    wait_for_change(board().bell, seen, deadline.left());
  }
  board().life.store(Life::kFinished, std::memory_order_release);
}

}  // namespace lockstep
