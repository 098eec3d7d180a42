// A flag whose value is a JSON object: the text itself, or the path of a file.
//
// Example:
//   const Json json = object_of_flag("--device_map", text_or_path, R"({"model": 0, "lm_head": 1})");
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep {

/// Whether it is the object itself: { stands first, after blanks.
bool is_inline_object(std::string_view value);

/// What errors call it: the flag, or the file's path.
std::string where_of_flag(const std::string& flag, const std::string& value);

/// Throws UserError(kUsage): no such file, text that is not JSON (and where), no object, a member that stands there
/// twice. `example` shows people what is expected.
Json object_of_flag(const std::string& flag, const std::string& value, const std::string& example);

}  // namespace lockstep
