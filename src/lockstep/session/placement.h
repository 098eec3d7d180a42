// Where the blocks of a model stand, as the options say: a map from a file, or one made for this model, these rows and
// these devices.
//
// Example:
//   options.placement = choose_placement(devices, placement, model, options, rows).placement;
#pragma once

#include <string>
#include <vector>

#include "lockstep/exec/rehearsal.h"
#include "lockstep/plan/plan.h"
#include "lockstep/session/job.h"
#include "lockstep/tensor/devices.h"

namespace lockstep {

struct ChosenPlacement {
  Placement placement;
  std::vector<std::string> notices;
  MemoryForecast forecast;  // of a map that was made for a run that trains nothing; else empty
};

/// `devices`: those that the rank drives (their names and capacities), and how they are rehearsed. `rows`: of a step,
/// which a map is made for; looked at only then. Throws UserError(kUsage, kMemory).
ChosenPlacement choose_placement(const RehearsalOptions& devices, const PlacementOptions& wanted, const Model& model,
                                 const PlanOptions& options, const RowsOfStep& rows);

/// The devices that this rank drives, for a rehearsal.
RehearsalOptions devices_for_rehearsal(const Job& job, const PlacementOptions& wanted, int64_t loss_chunk = 512);

/// `wanted` with what --memory_limit leaves for tensors: on the host it bounds the process, which holds libraries and its
/// own data already. Throws UserError(kMemory) when that alone is more.
PlacementOptions limits_of_tensors(const Job& job, PlacementOptions wanted);

/// Whether the weights may stand in memory once for all ranks, if they see one memory: on the CPUs of one host, where
/// nothing is trained. The same on every rank.
bool may_share_weights(const Job& job, const RunOptions& run, const PlanOptions& options);

/// The host, or virtual devices, or GPUs; the limit applies to each. Those that the plan wants.
Devices make_devices(const Job& job, const PlacementOptions& wanted, const Plan& plan);

}  // namespace lockstep
