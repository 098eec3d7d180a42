// What is known of a rank at one moment, as a plain value: read from its board and from the kernel. The judge sees
// nothing else, so that a job of any size can be judged on a desk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/guard/board.h"
#include "lockstep/guard/process.h"
#include "lockstep/guard/rank_set.h"

namespace lockstep {

/// The fact that says how often facts of this process took another value, as those of a second run do. Ranks that differ in
/// it stand in different runs, or on the way between two, and are not compared.
inline constexpr const char* kRunFact = "run";

inline constexpr int kMaxRanks = 1 << 24;

/// How a process ended, where its parent knows.
struct ProcessEnd {
  bool known = false, out_of_memory = false;
  int exit_code = 0, signal = 0;
};

/// Calls that a rank has made in a group where nobody can tell which: it comes to every one.
inline constexpr uint64_t kUnseen = INT64_MAX;

struct GroupReport {
  std::string name;
  RankSet members;                    // empty: all
  uint64_t entered = 0, history = 0;  // of all calls so far
  uint64_t path = 0;                  // and of their lines
  uint64_t nan_calls = 0;             // to which this rank gave NaN
  uint64_t waiting_seq = 0;           // 0: not waiting
  double waiting_seconds = 0;
  double last_waiting_seconds = 0;  // of several ranks that stand alike: of the last to come
  double patience_seconds = 0;      // of its own time-out; 0: as everywhere
  bool left = false;                // it makes no further call there
  bool stands = false;              // and can do nothing else meanwhile
  std::vector<FlightRecord> tail;   // the last calls, oldest first

  const FlightRecord* find(uint64_t seq) const;
  /// Those of the ranks that are in it.
  RankSet of(const RankSet& ranks) const { return members.empty() ? ranks : ranks.within(members); }
};

struct LastWordsReport {
  int exit_code = 0;
  int64_t at_ns = 0;
  bool secondary = false, shared = false;
  std::string message, hint, place;
};

struct RankReport {
  int rank = 0, node = 0, local_rank = 0, world_size = 1;
  int64_t pid = 0;
  std::string host;
  bool joined = false;       // has a board
  bool unreachable = false;  // its node does not answer
  Life life = Life::kStarting;
  int exit_code = 0;  // once finished
  ProcessLook process;
  ProcessEnd end;
  double stopped_seconds = 0, gone_seconds = 0;
  double aborting_seconds = 0, asked_seconds = 0;  // since a signal that it holds up, see Board
  Phase phase = Phase::kStart;
  std::string detail;
  double phase_seconds = 0;
  int64_t step = 0;
  Pace pace;
  std::vector<GroupReport> groups;
  int no_room = 0;  // bits of Board::no_room: of groups that it lacks nobody knows whether it has come to their calls
  std::optional<LastWordsReport> last_words;
  std::string facts, stack, post_mortem_dir;  // facts: a JSON object, see Recorder::add_fact
  std::vector<std::string> structures;        // see structure.h
  int64_t read_ns = 0, realtime_offset_ns = 0;

  /// The group whose call this rank waits in, first one that it stands in; nullptr when no call is open.
  const GroupReport* waiting() const;
  bool over() const { return life == Life::kFinished || process.state == ProcessState::kGone; }
  std::string place() const;  // "waiting for data (train.jsonl:17) for 12s, after step 7"
};

/// Bounded whatever the board holds. `tail`: calls of each group.
RankReport read_board(const Board& board, size_t tail);

Json to_json(const FlightRecord& record);
enum class Calls { kPlain, kPacked };  // for people, or for the way between agents
Json to_json(const RankReport& report, Calls calls = Calls::kPlain);
/// Of RankSet::ranges(); nothing: they are none.
std::optional<RankSet> ranks_from_json(const Json& ranges);
/// Throws Error on what is not a report; every text and list is bounded.
FlightRecord record_from_json(const Json& json);
RankReport report_from_json(const Json& json);

}  // namespace lockstep
