// An error at the border to the shell: printed once, whatever the number of ranks, and turned into an exit code.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

/// Of this process. It outlives the verb that fails, so that the failure can still be told to the roll call.
const std::shared_ptr<Recorder>& process_recorder();

/// Where the roll call watches, tells it and leaves the printing to it. Else prints `lockstep VERB: error: …` and a
/// hint to stderr. Writes TORCHELASTIC_ERROR_FILE when that is set. Returns the exit code.
int report_failure(const std::string& verb, const std::exception& error, const Env& env);

/// What torchrun shows in its box. Never throws.
void write_error_file(const std::string& path, const std::string& message);

}  // namespace lockstep
