// A plan as one HTML file that needs nothing else: the picture of its memory, and the text that a terminal shows.
#pragma once

#include <string>

#include "lockstep/base/json.h"

namespace lockstep {

/// `memory`: "memory" of plan.json.
std::string plan_page(const std::string& title, const Json& memory, const std::string& text);

}  // namespace lockstep
