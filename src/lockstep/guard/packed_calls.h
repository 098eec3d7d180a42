// Many calls in few bytes, for what travels between agents: every distinct call is written out once, the rest are
// numbers. Training repeats itself.
#pragma once

#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/guard/flight_ring.h"

namespace lockstep {

Json packed_calls(const std::vector<FlightRecord>& calls);
/// Throws Error on what are no packed calls; never more than a ring holds.
std::vector<FlightRecord> unpacked_calls(const Json& json);

}  // namespace lockstep
