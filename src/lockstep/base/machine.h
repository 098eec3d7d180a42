// What this machine, or the control group that this process is kept in, has: memory and cores.
//
// Example:
//   const int64_t share = machine_memory().available_bytes / ranks;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/env.h"

namespace lockstep {

struct MachineMemory {
  int64_t total_bytes = 0;      // no more than the control group allows
  int64_t available_bytes = 0;  // what can be had now without taking it from others
  bool limited = false;         // the control group allows less than the machine has
};

/// Zeros where the kernel does not tell.
MachineMemory machine_memory();

/// The same from texts: /proc/meminfo, and the group's limit and use in bytes (-1: no limit).
MachineMemory machine_memory_from(std::string_view meminfo, int64_t group_limit, int64_t group_used);

/// As this machine calls itself; "localhost" where it has no name.
std::string host_name();

/// Cores that this process may run on; at least 1.
int usable_cores();

/// OMP_NUM_THREADS of `env`: "4", or "4,2", a number for each level of nesting, of which the first counts; nullopt where it is not
/// set. Throws UserError(kUsage) for what is no number of threads.
std::optional<int> asked_threads(const Env& env);

/// Cores' worth of time that the control group gives; 0: no limit.
double cpu_quota();

/// "max 100000" or "150000 100000", as cpu.max has it, in cores; 0: no limit.
double parse_cpu_quota(std::string_view text);

/// Whether the processor multiplies bfloat16 by itself and LibTorch may use that: ONEDNN_MAX_CPU_ISA (also DNNL_MAX_CPU_ISA)
/// and ATEN_CPU_CAPABILITY of `env` name instructions that suffice, where they are set. `cpuinfo`: the text of
/// /proc/cpuinfo.
bool multiplies_bfloat16(const Env& env);
bool multiplies_bfloat16(std::string_view cpuinfo, const Env& env);

/// Whether Intel made the processor: some libraries run their quick code only there.
bool is_intel();
bool is_intel(std::string_view cpuinfo);

}  // namespace lockstep
