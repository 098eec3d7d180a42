#include "lockstep/plan/placement_json.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/json_fields.h"

namespace lockstep {

static void describe(OptimizerShare& share, JsonFields& f) {
  f.item(share.device);
  f.item(share.begin);
  f.item(share.end);
}

static void describe(Placement& placement, JsonFields& f) {
  f("num_devices", placement.num_devices);
  f("device_of_block", placement.device_of_block);
  f("optimizer_shares", placement.optimizer_shares);
  f("offload_params", placement.offload_params);
  f("offload_optimizer", placement.offload_optimizer);
}

Json placement_json(const Placement& placement) { return json_of(placement); }

Placement placement_from_json(const Json& json) { return record_of<Placement>(json, JsonReading::kStrict); }

}  // namespace lockstep
