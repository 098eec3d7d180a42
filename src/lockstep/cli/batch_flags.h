// --batch_size of a verb, a number or auto, and --memory_fraction beside it.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/session/batch_search.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

inline constexpr int64_t kMostRowsAtOnce = 65536;  // that a flag may ask for: more is a slip

/// Under `names`: a number from 1 to kMostRowsAtOnce, or auto.
void add_batch_flags(CLI::App& app, const std::string& names, const std::string& help, const std::string& group,
                     BatchSize& batch);

}  // namespace lockstep
