// Who holds the others up: compares the seconds that ranks are busy in a step, waiting left out. A straggler is told,
// never ended.
//
// Example:
//   straggling.observe(rank, pace, now);                 // as often as one likes
//   if (auto told = straggling.report(now)) say(told->text());
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/guard/board.h"

namespace lockstep {

/// Seconds per step of one rank, or in the middle of many.
struct StepCost {
  double busy = 0, waiting = 0;
  std::array<double, kPhases> phases{};
};

/// What a node tells of its ranks.
struct NodePace {
  int ranks = 0, slowest_rank = 0;
  StepCost median, slowest;
};
Json to_json(const NodePace& pace);
std::optional<NodePace> node_pace_from_json(const Json& json);  // nothing for what is not one

struct Straggler {
  int rank = 0;
  double factor = 1, seconds = 0, usual_seconds = 0;
  std::string phase;  // "data", "compute", "communication"
  std::string text() const;
};

class Straggling {
 public:
  void observe(int rank, const Pace& pace, Clock::time_point now);
  /// Of the ranks observed here; nothing before a few steps or seconds have passed.
  std::optional<NodePace> summary(Clock::time_point now) const;
  /// The slowest of all nodes, when it is worth telling and was not told lately.
  std::optional<Straggler> judge(const std::vector<NodePace>& nodes, Clock::time_point now);

 private:
  struct Track {
    Pace first, last;
    Clock::time_point since{};
    bool begun = false;
  };
  std::map<int, Track> tracks_;
  int told_rank_ = -1;
  std::string told_phase_;
  Clock::time_point next_telling_{};
  Clock::duration pause_ = std::chrono::seconds(30);
};

}  // namespace lockstep
