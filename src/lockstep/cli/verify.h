// lockstep verify: computes every case of an oracle folder again and says how far the results are apart.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const verify_summary;

/// `args` without program and verb. Returns 0 only if something was compared and everything compared holds.
int run_verify(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
