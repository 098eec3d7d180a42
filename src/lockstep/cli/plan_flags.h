// The flags of `lockstep plan`: those of sft, and for which machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/train_flags.h"

namespace lockstep {

struct PlanFlags {
  SftFlags sft;
  int world = 0;  // 0: those of this machine
  std::string device_memory, report;
  int gpus = 0;  // of a machine, with --device_memory; 0: one a rank
  bool inference = false, json = false;

  int64_t device_bytes() const;  // of --device_memory; 0: not given. Throws UserError(kUsage)
  /// Of flags that contradict each other. Throws UserError(kUsage).
  void check() const;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<PlanFlags> parse_plan_flags(const std::vector<std::string>& args);

}  // namespace lockstep
