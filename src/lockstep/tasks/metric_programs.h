// Metric programs run by rank 0 while the other ranks keep step with it: they meet about once a second, so that no time
// limit of theirs runs out however long a program may take.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/metric/program_run.h"

namespace lockstep {

/// Runs each program with the same rows, one behind the other; their stems and values, on rank 0. `programs` and `rows`
/// are looked at there alone. Throws on all ranks what a program did wrong. Collective.
std::vector<std::pair<std::string, Json>> run_metric_programs(Communicator& control,
                                                              const std::vector<Program>& programs,
                                                              const InputFile& rows, double timeout_s,
                                                              const EventBus& events);

}  // namespace lockstep
