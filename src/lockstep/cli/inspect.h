// lockstep inspect: what a checkpoint folder holds and whether everything in it can be used.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const inspect_summary;

/// `args` without program and verb. Returns 0, or 4 when something in the folder cannot be used; throws UserError.
int run_inspect(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
