// lockstep sft: fine-tune a model on one or many ranks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const sft_summary;

/// `args` without program and verb. Returns the exit code: 0, or 130 when interrupted with a checkpoint saved.
int run_sft(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
