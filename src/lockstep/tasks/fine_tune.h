// One training run: folder, model, rows, trainer, files, checkpoints.
//
// Example:
//   EventBus events;                                   // progress, evaluations, notices: add a sink of your own
//   const FineTuned done = fine_tune(job, {.run = {.model = "m"}, .dataset = {"rows.jsonl"}}, events);
//   std::cout << done.last_checkpoint << "\n";
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/event.h"
#include "lockstep/session/job.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

/// The same on every rank.
struct FineTuned {
  bool interrupted = false;     // stopped as wished, with a checkpoint saved if a step was made
  std::filesystem::path dir;    // the run folder
  std::string last_checkpoint;  // of a run with nothing left to do: the one that it resumed; empty: none was saved
  std::string best_checkpoint;  // of the best evaluation; empty: none was saved there
  int64_t steps = 0;            // of the whole run, those before a resume too
  double train_loss = 0, seconds = 0;  // mean over steps; of this process
};

/// `events` has sinks on the reporting rank only; the run folder's own files are written besides. An error is also told
/// to the run's files before it is thrown on. Throws UserError, CollectiveError, Error(kNumerics). Collective.
FineTuned fine_tune(Job& job, const FineTuneOptions& options, const EventBus& events);

}  // namespace lockstep
