// lockstep infer: a chat in the terminal, or a file of prompts answered into another file.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const infer_summary;

/// `args` without program and verb. Returns the exit code.
int run_infer(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
