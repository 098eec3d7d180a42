// The flags of `lockstep plan`: those of sft, and for which machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/train_flags.h"
#include "lockstep/tasks/plan_job.h"

namespace lockstep {

struct PlanFlags {
  SftFlags sft;
  JobPlanOptions given;  // what a flag says as it is
  std::string device_memory, report;
  bool json = false;

  /// All of it. Throws UserError(kUsage), also where flags contradict each other.
  JobPlanOptions options(const Env& env) const;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<PlanFlags> parse_plan_flags(const std::vector<std::string>& args);

}  // namespace lockstep
