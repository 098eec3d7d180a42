// lockstep report: reads a post-mortem back, tells it in the terminal and draws the timeline of ranks as a page.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const report_summary;

/// `args` without program and verb. Returns 0; throws UserError when there is no post-mortem, or a malformed one.
int run_report(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
