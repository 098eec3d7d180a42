// A rank is through while others still stand in a call.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lockstep/guard/asked_to_end.h"
#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {
namespace {

constexpr double kEndHolds = 0.2;   // seconds for which it must have stood
constexpr double kCodeComes = 1.0;  // and until a process that leaves says with which code

/// An interpreter says it last, and takes a moment to get there.
bool code_is_coming(const RankReport& report) {
  const bool leaves = report.life == Life::kFinishing || report.life == Life::kFinished;
  return leaves && report.exit_code < 0 && report.phase_seconds < kCodeComes;
}

/// All others are through, and are more: then those who stand in the call made one that nobody else makes.
std::optional<Diagnosis> lone_call(const Census& census, const RankClass& waiter, const GroupReport& call) {
  const FlightRecord* made = call.find(call.waiting_seq);
  RankSet through;
  for (const auto& [one, ranks] : missing_for(census, waiter, &call)) {
    const Life life = one->sample.life;
    if ((life != Life::kFinished && life != Life::kFinishing) || one->sample.exit_code > 0) return std::nullopt;
    through.add(ranks);
  }
  const RankSet mine = call.of(waiter.ranks);
  if (made == nullptr || through.size() <= mine.size()) return std::nullopt;
  for (const auto& one : census.classes) {
    const GroupReport* group = group_named(one.sample, call.name);
    if (&one != &waiter && group != nullptr && group->waiting_seq != 0) return std::nullopt;
  }
  Diagnosis out{.fault = Fault::kEarlyEnd, .culprits = mine, .exit_code = kCommunicationCode};
  out.headline = fmt::format("{} {} in a call that {} did not make, and have finished", mine.phrase(),
                             mine.size() == 1 ? "is" : "are", through.phrase());
  out.why = "it is made in a branch that the others do not take, or in a step, row or epoch that they do not have";
  out.fix = fmt::format(
      "make the call on all ranks or on none: look for a branch on the rank around {}; where it is in a loop, let "
      "every "
      "rank leave it at the same step",
      made->site.view());
  out.places.push_back(place_of(waiter));
  out.group = call.name;
  out.seq = made->seq;
  out.sides.push_back({mine, made->call() + " (waiting)", std::string(made->site.view())});
  out.op = op_name(made->signature.op);
  out.label = made->label.view();
  return out;
}

std::optional<Diagnosis> early_end(const Census& census, const RankClass& waiter, const GroupReport& call) {
  const auto missing = missing_for(census, waiter, &call);
  if (std::ranges::any_of(missing, [](const Missing& one) { return code_is_coming(one.of->sample); }))
    return std::nullopt;
  if (auto lone = lone_call(census, waiter, call)) return lone;
  for (const auto& [one, ranks] : missing) {
    const RankReport& sample = one->sample;
    const bool ended = sample.life == Life::kFinished || sample.life == Life::kFinishing;
    const GroupReport* group = group_named(sample, call.name);
    const bool left = !ended && group != nullptr && group->left;
    // Asked to: somebody wanted it, of the others too.
    if ((!ended && !left) || sample.exit_code == kAskedToEnd) continue;
    Diagnosis out{.fault = Fault::kEarlyEnd, .culprits = ranks, .exit_code = kCommunicationCode};
    const std::string how = left                   ? fmt::format("{} left group \"{}\" (destroy_process_group)",
                                               ranks.size() == 1 ? "has" : "have", call.name)
                            : sample.exit_code < 0 ? "finished"  // with a code that Python does not tell
                                                   : fmt::format("finished (exit code {})", sample.exit_code);
    out.headline = fmt::format("{} {} while {} still {} in a call", ranks.phrase(), how, waiter.ranks.phrase(),
                               waiter.ranks.size() == 1 ? "is" : "are");
    out.why = "the rank had fewer steps, rows or epochs than the others, or left its loop early";
    out.fix = "let every rank leave its loop at the same step: agree on the number of steps before the loop";
    if (ended && sample.exit_code > 0) {
      out.why = "it ended by itself, with a code that says that something was wrong (SystemExit)";
      out.fix = fmt::format("mend what {} says in its last lines", ranks.phrase());
    }
    out.places.push_back(place_of(*one));
    name_call(census, *one, out);
    return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> early_end(const Census& census) {
  for (const auto& waiter : census.classes) {
    for (const auto& call : waiter.sample.groups) {
      if (call.waiting_seq == 0 || call.waiting_seconds < kEndHolds) continue;
      if (auto found = early_end(census, waiter, call)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
