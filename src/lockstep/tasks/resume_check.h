// Whether a run may go on from a checkpoint: on the model, the rows and the order that it had. Whatever else is other
// than it was, ranks, batches, stages, is no obstacle, and is told.
//
// Example:
//   const TrainerState before = check_resume({.checkpoint = dir, .model = model, .order = order, .rows = rows});
//   trainer.restore(before);
//   notice(resume_changes(before, trainer.state()));
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/model/model_place.h"
#include "lockstep/state/trainer_state.h"

namespace lockstep {

struct ResumeRequest {
  std::filesystem::path checkpoint;
  ModelPlace model;  // as given beside the checkpoint, whose own weights are read
  RowOrder order;
  std::string rows;        // fingerprint of the training rows
  std::string codes = {};  // of adapters: as which codes their base is kept, in words
};

/// Reads trainer_state.json and both folders' config.json. Throws UserError(kUsage) for another model, seed or order and
/// UserError(kData) for other rows, naming both values: rows of the epoch would be lost and others repeated.
TrainerState check_resume(const ResumeRequest& request);

/// The same of how rows come together, which is known when they have been measured. Throws UserError(kUsage).
void require_same_groups(const std::filesystem::path& checkpoint, const TrainerState& before, const RowOrder& now);

/// args.json as a checkpoint of adapters keeps it: with what tells their base from another. Text that is no JSON object stays.
std::string with_base(const std::string& args_json, const ModelPlace& model);

/// In words, of a run that goes on with `now` where `before` stood, or has nothing left to do; "": nothing that matters is
/// other.
std::string resume_changes(const TrainerState& before, const TrainerState& now);

}  // namespace lockstep
