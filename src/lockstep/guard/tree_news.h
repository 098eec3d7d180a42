// What an agent hears from others besides censuses. For .cpp files alone: it needs the whole of JSON.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

struct TreeNews {
  std::vector<Json> from_parent, from_children;
};

}  // namespace lockstep
