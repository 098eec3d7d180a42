// A post-mortem as people look at it, on a page or in a terminal: the diagnosis as values, ranks that stand alike in
// one row, what became of each in a few words, the calls of an odd rank beside those of a usual one.
//
// Example:
//   const Diagnosis diagnosis = diagnosis_of(found);
//   for (const auto& row : standings(found.ranks, diagnosis.culprits)) print(row.ranks.phrase(),
//   state_of(*row.sample));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/post_mortem.h"

namespace lockstep {

/// What the folder's diagnosis.json holds; parts that are missing or of another kind are left empty.
Diagnosis diagnosis_of(const PostMortem& found);

/// A row: one rank, or ranks that stand alike. `sample` points into the reports that it was made of.
struct Standing {
  RankSet ranks;
  const RankReport* sample = nullptr;
  bool culprit = false;
};

inline constexpr size_t kMostRows = 64;

/// By rank. Up to `most` reports get a row each; of more, culprits come first (one row each where there are few), then
/// one row for ranks that stand alike, and at most `most` rows in all.
std::vector<Standing> standings(const std::vector<RankReport>& reports, const RankSet& culprits,
                                size_t most = kMostRows);

/// Ranks of the job that left no report here.
RankSet ranks_without_report(const std::vector<RankReport>& reports);

enum class Mood { kFine, kWaiting, kBad };

/// What became of a rank: "killed (SIGKILL)", "stopped for 5.1s", "waits for 3.2s", "finished", "busy".
struct State {
  std::string text;
  Mood mood = Mood::kFine;
};
State state_of(const RankReport& report);
std::string_view life_text(Life life);  // "running"

/// The call that a rank entered last, with its group; nullptrs when it made none.
struct LastCall {
  const GroupReport* group = nullptr;
  const FlightRecord* record = nullptr;
};
LastCall last_call_of(const RankReport& report);

/// `a` - `b` in seconds. The times come from outside: any values are welcome.
double seconds_from(int64_t a_ns, int64_t b_ns);
/// The last moment at which the rank was seen alive, on its own clock.
int64_t last_seen_ns(const RankReport& report);
/// How long the call took, or has taken until the rank was last seen.
double call_seconds(const RankReport& report, const FlightRecord& record);

struct CallPair {
  uint64_t seq = 0;
  const FlightRecord *odd = nullptr, *usual = nullptr;  // nullptr: not made, or not recorded
  bool alike = false;
};

/// The calls around the one in question. Without one, or without ranks to compare, `calls` is empty.
struct Comparison {
  const RankReport *odd = nullptr, *usual = nullptr;
  std::string group;
  uint64_t seq = 0;
  std::vector<CallPair> calls;
};
Comparison compare_calls(const std::vector<RankReport>& reports, const Diagnosis& diagnosis);

}  // namespace lockstep
