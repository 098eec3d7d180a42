#include "lockstep/session/room.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

constexpr const char* kGoOn = "`lockstep plan` shows what is held; --force true goes on all the same";

/// The plan's search for changes, with what a rank has of the machine for its device.
Advice advice_for_machine(PlannedJob job, MemoryForecast forecast, const MachineRoom& room) {
  const int64_t share = std::max<int64_t>(1, room.machine.available_bytes / std::max(1, room.ranks));
  std::ranges::fill(job.devices.capacities, share);
  for (auto& device : forecast.devices) device.capacity = share;
  return advice_for(job, forecast);
}

}  // namespace

std::string MachineRoom::text() const {
  return fmt::format("{} need{} {}{}, and {} of this machine's {} are free{}",
                     ranks == 1 ? "one rank" : fmt::format("{} ranks", ranks), ranks == 1 ? "s" : "",
                     format_bytes(rank_bytes), ranks == 1 ? "" : " each", format_bytes(machine.available_bytes),
                     format_bytes(machine.total_bytes), machine.limited ? " (limited by the control group)" : "");
}

MachineRoom room_for(const MemoryForecast& forecast, bool on_cpu, int local_ranks, const MachineMemory& machine) {
  MachineRoom room{.rank_bytes = forecast.host.peak() + forecast.waiting_bytes + forecast.process_bytes,
                   .ranks = local_ranks,
                   .machine = machine};
  if (!on_cpu) return room;
  for (const auto& device : forecast.devices) room.rank_bytes += device.peak();
  return room;
}

void require_room(const PlannedJob& job, const MemoryForecast& forecast, const MachineRoom& room) {
  if (room.fits()) return;
  std::string hint = kGoOn;
  if (job.devices.host_is_device()) {
    const Advice advice = advice_for_machine(job, forecast, room);
    hint = advice.changes.empty()
               ? fmt::format(
                     "no change of flags helps: fewer tokens a row, more machines, or a "
                     "smaller model; {}",
                     kGoOn)
               : fmt::format("{} needs {} on each rank ({}); {}", join(advice.changes.front().flags, " "),
                             format_bytes(advice.changes.front().peak), advice.changes.front().effect, kGoOn);
  }
  throw UserError(ExitCode::kMemory, "the job does not fit this machine: " + room.text(), hint);
}

void require_gpu_room(const MemoryForecast& forecast, const MemoryOfGpu& memory_of) {
  for (const DeviceForecast& device : forecast.devices) {
    if (!gpu_of(device.name)) continue;
    const GpuMemory memory = memory_of(device.name);
    // Who asks has the runtime's context by then: what is free is without it.
    const int64_t usable = memory.free_bytes + memory.reserved_bytes;
    if (memory.total_bytes == 0 || device.peak() <= usable) continue;
    throw UserError(
        ExitCode::kMemory,
        fmt::format("the job does not fit {}: a rank needs {} there at its peak, and {} of its {} are free",
                    device.name, format_bytes(device.peak()), format_bytes(usable), format_bytes(memory.total_bytes)),
        fmt::format("nvidia-smi shows who else uses it; {}", kGoOn));
  }
}

int64_t checkpoint_bytes(const Plan& plan, int64_t weights_bytes, bool only_model) {
  if (only_model) return weights_bytes;
  const StateBytes state = plan.state_bytes();
  const ZeroStage& zero = plan.options.zero;
  return weights_bytes + (state.master + state.optimizer) * (zero.shards_optimizer() ? plan.options.world : 1);
}

}  // namespace lockstep
