// The report's style sheet and script, inlined into every page: no network, no fonts to load.
#pragma once

#include <string_view>

namespace lockstep {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace lockstep
