// Whether bytes are text: what Python and YAML readers let through may be no UTF-8, which JSON cannot be written with.
#pragma once

#include <string_view>

namespace lockstep {

bool is_utf8(std::string_view text);

}  // namespace lockstep
