// A rank that somebody ends by SIGTERM while its neighbours go on: no launcher does so.
#include <algorithm>

#include <fmt/format.h>

#include "lockstep/guard/judge_rules.h"

namespace lockstep {
namespace {

constexpr double kOthersAreAsked = 0.7;  // seconds in which a launcher tells all of them

/// Its neighbours on the same machine: of several machines one may be told long before another.
RankSet not_asked_beside(const Census& census, const RankClass& asked) {
  RankSet ranks;
  for (const auto& one : census.classes) {
    const RankReport& report = one.sample;
    if (report.node != asked.sample.node || !report.joined || report.over() || report.last_words) continue;
    if (report.asked_seconds == 0 && report.life <= Life::kRunning) ranks.add(one.ranks);
  }
  return ranks;
}

}  // namespace

Judgement judge_asked(const Census& census) {
  for (const auto& one : census.classes) {
    if (one.sample.asked_seconds < kOthersAreAsked) continue;
    const RankSet others = not_asked_beside(census, one);
    if (others.empty()) continue;
    Diagnosis out{.fault = Fault::kDeath, .culprits = one.ranks};
    out.headline =
        fmt::format("{} {} told to end (SIGTERM), and {} {} not", one.ranks.phrase(),
                    one.ranks.size() == 1 ? "was" : "were", others.phrase(), others.size() == 1 ? "was" : "were");
    out.why =
        "a launcher tells all of its ranks: somebody has sent the signal to this one alone, a person, or what watches "
        "over the machine's memory (earlyoom, systemd-oomd)";
    out.fix = "find who sent it (the logs of the scheduler and of the machine); the job cannot go on without the rank";
    out.places.push_back(place_of(one));
    name_call(census, one, out);
    return {.verdict = Verdict::kNotice, .diagnosis = std::move(out)};
  }
  return {};
}

}  // namespace lockstep
