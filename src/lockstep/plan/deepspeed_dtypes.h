// What a DeepSpeed JSON says of numbers of 16 bits: "bf16", "fp16", "torch_autocast".
#pragma once

#include <string>

#include "lockstep/base/json.h"
#include "lockstep/plan/zero.h"

namespace lockstep {

/// Whether it is one of them; "bfloat16" is an older name.
bool is_dtype_section(const std::string& key);

/// Adds to `out` what the section `key` says. `where`: what errors call the file. Throws UserError(kUsage).
void read_dtype_section(const std::string& key, const Json& value, const std::string& where, DeepSpeedChoice& out);

}  // namespace lockstep
