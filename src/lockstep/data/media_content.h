// How a row writes a medium itself, where others write the name of a file.
#pragma once

#include <string_view>

namespace lockstep {

/// A key whose value is the medium, in base64.
bool is_content(std::string_view key);

/// "data:…", in any case of letters.
bool is_data_uri(std::string_view text);

/// Some data sets store the medium without saying so; no path is that plain and that long, or begins as media do.
bool looks_like_base64(std::string_view text);

}  // namespace lockstep
