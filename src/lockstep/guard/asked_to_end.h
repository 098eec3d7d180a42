// A rank that has been told to end by a signal: its launcher wants all of them to, one a moment before another.
#pragma once

#include <csignal>

namespace lockstep {

/// The code that its board says it finished with.
inline constexpr int kAskedToEnd = 128 + SIGTERM;

}  // namespace lockstep
