// Everything the report shows, as values: one run from its start to now, earlier parts of a resumed run included.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"

namespace lockstep {

struct RunHistory {
  RunStarted start;
  std::vector<StepDone> steps;
  std::vector<EvalDone> evals;
  std::optional<MemoryMeasured> memory;  // the newest
  std::vector<CheckpointSaved> checkpoints;
  std::vector<std::string> notices;
  std::optional<RunEnded> end;  // nullopt: the run goes on
};

}  // namespace lockstep
