// Whether anybody listens at an address yet.
#pragma once

#include <string>

#include "lockstep/base/clock.h"

namespace lockstep {

/// Returns once somebody listens there, when the deadline has passed, or at once when more than waiting is needed: the name is
/// unknown, no way leads there. c10d's client sleeps 250 to 750 ms after the first refusal, and ranks that start together come
/// before rank 0 listens; this looks again after a few milliseconds.
void await_listener(const std::string& host, int port, const Deadline& deadline);

}  // namespace lockstep
