// lockstep plan: what a run would hold and do on each rank, from config.json and flags alone.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const plan_summary;

/// `args` without program and verb. Reads no weights and starts no ranks. Returns the exit code.
int run_plan(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
