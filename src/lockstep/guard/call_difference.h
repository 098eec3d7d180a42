// Two ranks' calls that should have been one, in words: what differs, why that is bad, what mends it.
//
// Example:
//   Diagnosis out{.culprits = RankSet({2})};
//   explain_difference(odd, usual, "ranks 0, 1", out);   // "rank 2 sent another dtype: f64 beside f32"
#pragma once

#include <string>

#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/flight_ring.h"

namespace lockstep {

/// Headline, why and fix of `out`, whose culprits made `odd` where `others` made `usual`.
void explain_difference(const FlightRecord& odd, const FlightRecord& usual, const std::string& others, Diagnosis& out);

}  // namespace lockstep
