// A DeepSpeed JSON: each of its keys, inner ones too, is used, says what a flag says, makes no difference (and is told so),
// or is refused.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/plan/zero.h"

namespace lockstep {

/// `where`: what errors call it. Throws UserError(kUsage), for what is asked of and not built.
DeepSpeedChoice read_deepspeed_file(const Json& config, const std::string& where);

}  // namespace lockstep
