// Which ranks made which call of a group: those that made the same stand in one camp.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lockstep/guard/call_paths.h"
#include "lockstep/guard/census.h"

namespace lockstep {

struct Track {
  const RankClass* ranks;
  const GroupReport* group;
};

/// Ranks that made the same call at the place in question, with one of them to read on from.
struct Camp {
  RankSet ranks;
  Track track;
  const FlightRecord* call;
};

/// Of all classes of ranks that have calls in the group.
std::vector<Track> tracks_of(const Census& census, const std::string& group);

/// The first number at which two tracks have another history; 0 when none is recorded.
uint64_t first_divergence(const std::vector<Track>& tracks);

/// The first number at which equal calls come from other lines on a part of the ranks; 0 when there is none. Of calls in
/// which all ranks do the same: others are made in branches by right.
uint64_t first_other_line(const std::vector<Track>& tracks);

std::set<std::string> groups_of(const Census& census);

/// The largest first; of two that are as large the one that goes on as ever.
std::vector<Camp> camps_at(const std::vector<Track>& tracks, uint64_t seq, Alike alike);

}  // namespace lockstep
