// Fields of a row as its readers look for them: one that is null is not there.
#pragma once

#include <span>

#include "lockstep/base/json.h"

namespace lockstep {

/// nullptr: the row has none.
const Json* find_value(const Json& row, const char* name);

/// The first of these names that the row has; nullptr: none.
const char* first_name(const Json& row, std::span<const char* const> names);

}  // namespace lockstep
