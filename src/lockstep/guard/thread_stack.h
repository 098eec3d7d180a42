// Where a thread of this process stands, asked from another one.
#pragma once

#include <string>

#include <sys/types.h>

#include "lockstep/base/clock.h"

namespace lockstep {

/// Call once, early, from any thread: the first walk over a stack loads a library.
void prepare_thread_stacks();

/// The calls that thread `tid` is in, innermost first, a line each. When the thread does not answer in time (it sleeps
/// in the kernel), what the kernel says of it.
std::string stack_of_thread(pid_t tid, Clock::duration patience);

}  // namespace lockstep
