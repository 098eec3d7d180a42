// What `accelerate launch --no_python lockstep sft …` says by variables, as --accelerate_config takes it.
#pragma once

#include <string>

#include "lockstep/base/env.h"

namespace lockstep {

/// Empty: it is not accelerate that has started this.
std::string accelerate_launch_settings(const Env& env);

}  // namespace lockstep
