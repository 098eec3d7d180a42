// lockstep eval: loss, and metrics of generated answers, built in and a person's own (docs/evaluate.md).
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const eval_summary;

/// `args` without program and verb. Returns the exit code.
int run_eval(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
