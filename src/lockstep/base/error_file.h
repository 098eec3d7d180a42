// What torchrun shows in its box when a rank ends.
#pragma once

#include <string>

namespace lockstep {

/// Writes TORCHELASTIC_ERROR_FILE's form to `path`. Never throws.
void write_error_file(const std::string& path, const std::string& message);

}  // namespace lockstep
