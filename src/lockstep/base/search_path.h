// Where a program lies that is named without a folder.
#pragma once

#include <string>

namespace lockstep {

/// What PATH is where nobody says otherwise.
inline constexpr const char* kUsualSearchPath = "/usr/local/bin:/usr/bin:/bin";

/// The first file of this name that may be executed, in folders with colons between, as PATH has them ("": this folder);
/// "" when there is none.
std::string program_on(const std::string& search_path, const std::string& name);

}  // namespace lockstep
