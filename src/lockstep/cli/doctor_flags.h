// The flags of `lockstep doctor`: those of the job that is to be looked at beforehand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/train_flags.h"

namespace lockstep {

struct DoctorFlags {
  SftFlags job;  // its model, ranks, rows and components; the rest stays at its defaults
  bool inference = false, json = false;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<DoctorFlags> parse_doctor_flags(const std::vector<std::string>& args);

}  // namespace lockstep
