// What a timeline shows and where, before it is drawn: the rows' calls on one clock, packed into lanes, and the window
// that makes the end readable.
#pragma once

#include <string>
#include <vector>

#include "lockstep/watch/post_mortem_view.h"
#include "lockstep/watch/time_scale.h"

namespace lockstep {

/// Times are seconds before the end of the record (0), so never above it.
struct Bar {
  double from = 0, to = 0;
  int lane = 0;
  bool open = false, marked = false;  // never finished; the call in question
  const GroupReport* group = nullptr;
  const FlightRecord* record = nullptr;
};

struct TimelineRow {
  Standing standing;
  std::vector<Bar> bars;  // by start
  int num_lanes = 1;
  double last_seen = 0;
  bool has_marked = false;
};

struct TimelinePlan {
  std::vector<TimelineRow> rows;
  TimeScale scale;
  size_t num_recorded = 0, num_shown = 0;  // calls of the rows
};

/// The last 200 calls or so of each row, and always the call in question. Ranks of different hosts meet on the clock of
/// the wall; a host whose clock is far off is placed by the moment at which it was read.
TimelinePlan plan_timeline(const std::vector<Standing>& rows, const Comparison& marked);

}  // namespace lockstep
