// The name of an activation, of those that are built.
#pragma once

#include <string>

#include "lockstep/model/hf_config.h"

namespace lockstep {

/// `usual` where the key is left out. Throws UserError(kCheckpoint) naming the key, those that there are, and the one found.
std::string read_activation(const HfConfig& config, const char* key, const std::string& usual);

}  // namespace lockstep
