// An error at the border to the shell: printed once, whatever the number of ranks, and turned into an exit code.
#pragma once

#include <exception>
#include <string>

#include "lockstep/base/env.h"

namespace lockstep {

/// Prints `lockstep VERB: error: …` and a hint to stderr, unless another rank does or its end was the cause; writes
/// TORCHELASTIC_ERROR_FILE when that is set. Returns the exit code.
int report_failure(const std::string& verb, const std::exception& error, const Env& env);

}  // namespace lockstep
