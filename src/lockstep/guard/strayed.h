// Who has left its own path: training makes the same calls step after step, so a rank that waits in one of another
// group than it used to at this place has taken a branch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/guard/report.h"

namespace lockstep {

struct Strayed {
  std::vector<FlightRecord> skipped;  // earlier calls that used to come where the last one stands; at least one
  std::string group;                  // of the first of them
  bool moved = false;                 // the last call is that one, made in another group
};

/// Compares a rank's last call with what used to follow the calls before it, over all its groups. Nothing when it is
/// the usual one, or when too little is recorded to tell.
std::optional<Strayed> strayed(const RankReport& report);

}  // namespace lockstep
