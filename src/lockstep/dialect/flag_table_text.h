// flag_table.txt as the program carries it; CMake makes the .cpp of it.
#pragma once

#include <string_view>

namespace lockstep {

extern const std::string_view kFlagTableText;

}  // namespace lockstep
