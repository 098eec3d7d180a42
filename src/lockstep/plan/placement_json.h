// A placement as JSON, for other ranks: what one of them chose.
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

Json placement_json(const Placement& placement);
/// Throws Json::exception on what is not one.
Placement placement_from_json(const Json& json);

}  // namespace lockstep
