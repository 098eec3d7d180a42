// The calls of two ranks beside each other: where one of them left out a call, made one besides, or two in another order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/guard/report.h"

namespace lockstep {

/// Whether two calls are one: by what they are, or by the line that makes them as well, which tells calls of one shape apart.
using Alike = bool (*)(const FlightRecord& a, const FlightRecord& b);
bool same_call(const FlightRecord& a, const FlightRecord& b);
bool same_line(const FlightRecord& a, const FlightRecord& b);

/// What used to follow: the call after the latest range that is most like the one before `seq`. Training repeats
/// itself, so this tells who left the path where there is no majority. nullptr: nothing like it.
const FlightRecord* habit(const GroupReport& group, uint64_t seq, Alike same);

/// Whether its call there, which must be recorded, is what it used to make.
bool as_ever(const GroupReport& group, uint64_t seq, Alike same);

/// Calls that the odd one left out, or made besides. Both: in a loop it has come to its beginning where others go on to its end.
struct Gap {
  size_t skipped = 0, extra = 0;
};
/// At `seq`, which both have recorded. None where the one call was made in place of the other.
Gap gap_between(const GroupReport& odd, const GroupReport& usual, uint64_t seq, Alike same);

/// The two calls from `seq` on, in the other order; not where the two sides go on to call them in turn, one behind.
bool swapped(const GroupReport& a, const GroupReport& b, uint64_t seq, Alike same);

/// Whether all calls of the two lines come side by side, up to `seq` always in this order: they belong together, and are no
/// branches of which each rank takes one.
bool always_a_pair(const GroupReport& group, uint64_t seq, const FlightRecord& first, const FlightRecord& second);

/// They part at `seq` by what they call. Where equal calls before it were paired that other lines had made, because one
/// was left out or made besides: the first of these; else `seq`.
uint64_t lines_part(const GroupReport& odd, const GroupReport& usual, uint64_t seq);

}  // namespace lockstep
