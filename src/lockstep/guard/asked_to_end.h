// A rank that has been told to end by a signal: its launcher wants all of them to, one a moment before another. So says too who leaves the
// roll call, and does not end.
#pragma once

#include <csignal>

namespace lockstep {

/// The code that its board says it finished with.
inline constexpr int kAskedToEnd = 128 + SIGTERM;

}  // namespace lockstep
