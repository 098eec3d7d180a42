// The order of the rules, strongest first: what is proven ends the job, what is not becomes a notice until the patience
// is over.
#include <algorithm>

#include <fmt/format.h>

#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/splits.h"

namespace lockstep {
namespace {

constexpr int64_t kOthersSayNs = 300'000'000;
constexpr double kCauseComes = 1.0;    // seconds in which the cause of a broken transport shows
constexpr double kStoppedHolds = 2.5;  // and for which a process must have been stopped

Judgement end_with(Diagnosis diagnosis) { return {.verdict = Verdict::kEnd, .diagnosis = std::move(diagnosis)}; }

/// What ranks wait for outside of any call all of them may wait for, and each says so when its own patience is over.
bool all_have_said(const Census& census, const RankClass& words) {
  const LastWordsReport& said = *words.sample.last_words;
  if (said.exit_code != kCommunicationCode || words.sample.read_ns - said.at_ns > kOthersSayNs) return true;
  return std::ranges::all_of(census.classes,
                             [](const RankClass& one) { return one.sample.last_words || one.sample.over(); });
}

}  // namespace

std::string where_it_runs(const RankReport& report) {
  return report.host.empty() ? fmt::format("process {}", report.pid)
                             : fmt::format("process {} on {}", report.pid, report.host);
}

std::string place_of(const RankClass& one) {
  std::string text = fmt::format("{}: {}", one.ranks.phrase(), one.sample.place());
  if (one.sample.pid > 0) text += fmt::format("; {}", where_it_runs(one.sample));
  return text;
}

const FlightRecord* last_call(const RankReport& report) {
  const FlightRecord* last = nullptr;
  for (const auto& group : report.groups) {
    if (!group.tail.empty() && (last == nullptr || group.tail.back().entered_ns > last->entered_ns)) {
      last = &group.tail.back();
    }
  }
  return last;
}

void name_call(const Census& census, const RankClass& culprit, Diagnosis& out) {
  const RankClass* waiter = nullptr;
  for (const auto& one : census.classes) {
    if (&one == &culprit || one.sample.waiting() == nullptr) continue;
    if (waiter == nullptr || one.ranks.size() > waiter->ranks.size()) waiter = &one;
  }
  const GroupReport* group = waiter != nullptr ? waiter->sample.waiting() : nullptr;
  const FlightRecord* awaited = group != nullptr ? group->find(group->waiting_seq) : nullptr;
  const FlightRecord* own = last_call(culprit.sample);
  if (awaited != nullptr) {
    out.group = group->name;
    out.seq = awaited->seq;
    out.sides.push_back({waiter->ranks, awaited->call() + " (waiting)", std::string(awaited->site.view())});
  }
  if (own != nullptr) {
    out.sides.push_back({culprit.ranks,
                         fmt::format("{} (its last, #{}, {})", own->call(), own->seq, call_state_name(own->state)),
                         std::string(own->site.view())});
  }
  if (const FlightRecord* named = awaited != nullptr ? awaited : own; named != nullptr) {
    out.op = op_name(named->signature.op);
    out.label = named->label.view();
  }
}

/// A person (Ctrl-Z) or a batch system has suspended all of the job: nobody waits for anybody, and it may go on.
static bool is_suspended(const Census& census) {
  const auto stands = [](const RankClass& one) {
    return one.sample.over() || one.sample.process.state == ProcessState::kStopped;
  };
  const auto is_over = [](const RankClass& one) { return one.sample.over(); };
  return std::ranges::all_of(census.classes, stands) && !std::ranges::all_of(census.classes, is_over);
}

Judgement judge(const Census& census, const JudgeOptions& options) {
  if (auto facts = differing_facts(census)) return end_with(std::move(*facts));  // the cause of all else
  const RankClass* words = first_words(census, /*secondary=*/false);
  Judgement mismatch = judge_mismatch(census);
  if (mismatch.verdict == Verdict::kEnd && !(words != nullptr && error_came_first(*words, mismatch.diagnosis))) {
    return mismatch;
  }
  if (words == nullptr) {
    if (auto found = differing_splits(census)) return end_with(std::move(*found));
  }
  if (words != nullptr) return all_have_said(census, *words) ? end_with(error_of(census, *words)) : Judgement{};
  if (auto found = death(census)) return end_with(std::move(*found));
  if (options.whole && is_suspended(census)) return {};
  if (auto found = stopped(census, std::min(options.soft_seconds, kStoppedHolds))) return end_with(std::move(*found));
  if (auto found = lost_node(census)) return end_with(std::move(*found));
  if (options.whole) {
    if (auto found = early_end(census)) return end_with(std::move(*found));
    if (auto found = deadlock(census)) return end_with(std::move(*found));
  }
  if (const RankClass* broken = first_words(census, /*secondary=*/true)) {
    const LastWordsReport& said = *broken->sample.last_words;
    if (static_cast<double>(broken->sample.read_ns - said.at_ns) * 1e-9 < kCauseComes) return {};
    Diagnosis out = error_of(census, *broken);
    out.fault = Fault::kTransport;
    return end_with(std::move(out));
  }
  Judgement late = options.whole ? judge_late(census, options) : Judgement{};
  return late.verdict != Verdict::kFine ? late : judge_absent(census, options);
}

}  // namespace lockstep
