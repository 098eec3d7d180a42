// What metric programs have measured: JSON objects on their standard output, judged and put side by side.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/metric/program_run.h"

namespace lockstep {

/// The object that a run has printed. Throws UserError(kData): ended by a signal or with another code than 0 (with its
/// last words), too late, or not an object (with its first bytes).
Json printed_values(const Program& program, const ProgramResult& result);

/// The values of several programs as one object. A name that several have, or that is among `taken`, gets the program's
/// stem in front: "my_metric.accuracy".
Json merged_values(const std::vector<std::pair<std::string, Json>>& by_stem, const std::vector<std::string>& taken);

}  // namespace lockstep
