// YAML files as JSON values.
#pragma once

#include <filesystem>

#include "lockstep/base/json.h"

namespace lockstep {

/// Plain scalars become null, booleans (true and false) and numbers where they spell one; all else is text, and so is
/// whatever is quoted. What "<<" names is merged. Throws UserError(kUsage) with line and column: broken YAML, a key that stands
/// twice, a key that is no text, a second document.
Json read_yaml(const std::filesystem::path& path);

}  // namespace lockstep
