// Whether a machine has room for what its ranks are predicted to take, before any weight is read.
//
// Example:
//   const MachineRoom room = room_for(forecast, job.on_cpu(), job.world.local_size, machine_memory());
//   if (!options.force) require_room(planned, forecast, room);
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/machine.h"
#include "lockstep/plan/memory_forecast.h"
#include "lockstep/plan/plan.h"
#include "lockstep/session/forecast.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

struct MachineRoom {
  int64_t rank_bytes = 0;  // of the machine's own memory, by each of its ranks
  int ranks = 1;
  MachineMemory machine;

  int64_t needed_bytes() const { return rank_bytes * ranks; }
  bool fits() const { return machine.total_bytes == 0 || needed_bytes() <= machine.available_bytes; }
  std::string text() const;  // "2 ranks need 90.00 GiB each, and 18.10 GiB of this machine's 23.43 GiB are free"
};

/// On the CPU all that a rank holds stands in the machine's memory; else what is kept on the host.
MachineRoom room_for(const MemoryForecast& forecast, bool on_cpu, int local_ranks, const MachineMemory& machine);

/// Asks a GPU, "cuda:1", for its memory: gpu_memory(), or a test's own.
using MemoryOfGpu = std::function<GpuMemory(const std::string& device)>;

/// Of the GPUs that a rank drives: what tensors are predicted to need there beside what is free and what this process
/// keeps for them already. Throws UserError(kMemory) with the first that lacks some.
void require_gpu_room(const MemoryForecast& forecast, const MemoryOfGpu& memory_of);

/// Throws UserError(kMemory) with the cheapest change of flags that would fit.
void require_room(const PlannedJob& job, const MemoryForecast& forecast, const MachineRoom& room);

/// Of a whole checkpoint on disk. `weights_bytes`: of the model's files.
int64_t checkpoint_bytes(const Plan& plan, int64_t weights_bytes, bool only_model);

}  // namespace lockstep
