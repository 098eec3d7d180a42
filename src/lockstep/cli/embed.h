// `lockstep embed`: one vector a row, or a token, for any number of multimodal rows on any number of ranks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const embed_summary;

/// Exit code 0. Throws UserError, CollectiveError.
int run_embed(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
