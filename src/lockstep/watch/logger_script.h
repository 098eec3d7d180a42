// tools/loggers/logger.py, which the program carries: what feeds trackers that are Python packages.
#pragma once

#include <string_view>

namespace lockstep {

extern const std::string_view kLoggerScript;

}  // namespace lockstep
