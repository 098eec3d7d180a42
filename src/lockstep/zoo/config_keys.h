// Keys of a family's config.json whose values must be some of those that there are.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/model/hf_config.h"

namespace lockstep {

/// "<file>: <key>: expected …, found …" with the value that stands there, or none: a kCheckpoint to throw.
UserError wrong_key(const HfConfig& config, const char* key, const std::string& expected);

/// The name of an activation, of those that are built; `usual` where the key is left out. Throws UserError(kCheckpoint) naming
/// the key, those that there are, and the one found.
std::string read_activation(const HfConfig& config, const char* key, const std::string& usual);

}  // namespace lockstep
