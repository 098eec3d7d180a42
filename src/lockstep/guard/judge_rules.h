// The rules of the judge, one function each. For judge*.cpp alone.
#pragma once

#include <optional>
#include <string>

#include "lockstep/guard/diagnosis.h"

namespace lockstep {

inline constexpr int kCommunicationCode = static_cast<int>(ExitCode::kCommunication);

// judge_ends.cpp: what ranks said, and how processes ended.
const RankClass* first_words(const Census& census, bool secondary);
Diagnosis error_of(const Census& census, const RankClass& one);
bool error_came_first(const RankClass& one, const Diagnosis& mismatch);
std::optional<Diagnosis> differing_facts(const Census& census);
std::optional<Diagnosis> death(const Census& census);
std::optional<Diagnosis> stopped(const Census& census, double soft_seconds);
std::optional<Diagnosis> lost_node(const Census& census);

// Who waits for whom: judge_early_end.cpp, judge_deadlock.cpp, judge_waiting.cpp.
std::optional<Diagnosis> early_end(const Census& census);
std::optional<Diagnosis> deadlock(const Census& census);
/// "#11 of group "data": all_reduce f32[4]", of one that waits.
std::string standing(const RankClass& one);
Judgement judge_late(const Census& census, const JudgeOptions& options);
Judgement judge_absent(const Census& census, const JudgeOptions& options);

// judge.cpp: the words that all share.
std::string place_of(const RankClass& one);  // "rank 3: waiting for data (rows.jsonl:17) for 12s; process 41 on a"
std::string where_it_runs(const RankReport& report);
const FlightRecord* last_call(const RankReport& report);
/// The call that the most others wait in, for a culprit that does not come to it; else its own last call.
void name_call(const Census& census, const RankClass& culprit, Diagnosis& out);

}  // namespace lockstep
