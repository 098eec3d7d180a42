// This machine's facts, for the judgements of machine.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/comm/world.h"
#include "lockstep/doctor/machine.h"

namespace lockstep {

/// `transport`: --transport.
SharedMemoryFacts shared_memory_facts(const World& world, const std::string& transport);
/// Makes nothing: looks at the nearest folder above `dir` that is there.
DiskFacts disk_facts(const std::string& dir, std::optional<int64_t> checkpoint_bytes);
OpenFilesFacts open_files_facts(int64_t needed);
/// Watches both clocks for a tenth of a second.
ClockFacts clock_facts();
double wall_seconds();
MemoryFacts memory_facts(int local_ranks, std::optional<int64_t> state_bytes);
CoreFacts core_facts(int local_ranks, const Env& env);
std::string huge_pages_setting();

/// Bytes a second of a plain copy from memory to memory, on one core.
double copy_bandwidth();

}  // namespace lockstep
