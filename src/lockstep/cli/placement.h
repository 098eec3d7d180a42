// Where the blocks of a model stand, as the flags say: a map from a file, or one made for this model, these rows and
// these devices.
//
// Example:
//   options.placement = choose_placement(scene, flags, model, options, rows).placement;
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/placement_flags.h"
#include "lockstep/exec/rehearsal.h"
#include "lockstep/plan/plan.h"
#include "lockstep/tensor/devices.h"

namespace lockstep {

struct ChosenPlacement {
  Placement placement;
  std::vector<std::string> notices;
};

/// `scene`: the devices that the rank drives (their names and capacities), and how they are rehearsed. `rows` is asked
/// only when a map is to be made. Throws UserError(kUsage, kMemory).
ChosenPlacement choose_placement(const RehearsalOptions& scene, const RunFlags& run, const Model& model,
                                 const PlanOptions& options, const std::function<RowsOfWindow()>& rows);

/// For other ranks: what one of them chose.
Json placement_json(const Placement& placement);
Placement placement_from_json(const Json& json);

/// The devices that this rank drives, for a rehearsal.
RehearsalOptions rehearsal_scene(const Job& job, const RunFlags& flags, int64_t loss_chunk = 512);

/// The host, or virtual devices, or GPUs; the limit of the flags applies to each. Those that the plan wants.
Devices make_devices(const Job& job, const RunFlags& flags, const Plan& plan);

}  // namespace lockstep
