// All ranks, those that stand alike together: what an agent tells its parent, and what the judge sees. Its size is the
// number of different standings, not of ranks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/guard/rank_set.h"
#include "lockstep/guard/report.h"

namespace lockstep {

struct RankClass {
  RankSet ranks;
  RankReport sample;  // of its first rank; the times are the longest of the class
};

struct Census {
  std::vector<RankClass> classes;

  void add(RankReport report);
  void add(Census other);
  RankSet all() const;
  const RankClass* of(int rank) const;
};

Json to_json(const Census& census);
/// Throws Error on what is not a census.
Census census_from_json(const Json& json);

}  // namespace lockstep
