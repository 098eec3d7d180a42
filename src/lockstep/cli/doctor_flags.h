// The flags of `lockstep doctor`: those of the job that is to be looked at beforehand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/tasks/examine.h"

namespace lockstep {

struct DoctorFlags {
  RunFlags run;
  RowFlags rows;
  ExamineOptions given;  // the rest of the job stays at its defaults
  bool json = false;
  std::vector<std::string> notices;  // what a person should know about the flags

  ExamineOptions options(const Env& env) const;  // throws UserError(kUsage)
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<DoctorFlags> parse_doctor_flags(const std::vector<std::string>& args);

}  // namespace lockstep
