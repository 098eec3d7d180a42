// lockstep init: a complete checkpoint folder of a family and size, with random weights and a tokenizer of its own.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const init_summary;

/// `args` without program and verb. Returns the exit code; throws UserError.
int run_init(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
