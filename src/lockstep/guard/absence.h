// Whether this node's own agent did nothing for a while: then its ranks did not either, and what the others made of it meanwhile
// is no fault of theirs. Seen by its own clock alone: the time between two of its turns, which are milliseconds apart.
//
// Example:
//   absence.look(absence_clock());                              // at every turn
//   judge(census, absence.allowing(options, absence_clock()));  // what was waited while nobody here could move does not count
//   end_job(absence.explained(found, own_node, absence_clock()));
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/guard/diagnosis.h"

namespace lockstep {

/// Goes on while a machine is suspended.
std::chrono::nanoseconds absence_clock();

class Absence {
 public:
  /// Less than other nodes wait before they give one up, more than a loaded machine keeps a thread waiting.
  static constexpr std::chrono::seconds kNoticed{4};

  struct Node {
    int number = 0, num_nodes = 1;
    RankSet ranks;
  };

  /// Tells how many seconds it was away, once it is back.
  std::optional<double> look(std::chrono::nanoseconds now);
  /// With as much more patience, as long as somebody may have waited since before.
  JudgeOptions allowing(const JudgeOptions& options, std::chrono::nanoseconds now) const;
  /// As it is, or of this node, where it may be what the others made of its absence.
  Diagnosis explained(Diagnosis found, const Node& own, std::chrono::nanoseconds now) const;

 private:
  double seconds_since_return(std::chrono::nanoseconds now) const;

  std::optional<std::chrono::nanoseconds> looked_, returned_;
  double seconds_ = 0;
};

}  // namespace lockstep
