// What the post-mortem page adds to the report's style sheet.
#pragma once

#include <string_view>

namespace lockstep {

extern const std::string_view kPostMortemStyle;

}  // namespace lockstep
