// lockstep demo: data, model, training, evaluation and questions, from nothing to an answer in minutes.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const demo_summary;

/// `args` without program and verb. Returns 0 only when the figures are as good as they should be.
int run_demo(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
