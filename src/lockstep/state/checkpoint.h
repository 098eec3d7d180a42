// Checkpoints: a Hugging Face folder plus sharded optimizer state and the trainer's place, written under a temporary
// name, sealed with a manifest, then renamed. A kill at any moment leaves the previous one whole.
//
// Example:
//   const CheckpointSaved saved = save_checkpoint(contents, {.output_dir = run_dir, .save_total_limit = 2}, data,
//   control); if (const auto last = latest_whole(run_dir, notices)) resume_state(*last, store, data, control);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/checkpoint_model.h"
#include "lockstep/state/side_files.h"
#include "lockstep/state/trainer_state.h"

namespace lockstep {

struct CheckpointContents {
  const ModelSource& source;
  const SideFiles& side_files;  // rank 0 writes them
  const std::string& args_json;
  ParamStore& store;
  const TrainerState& state;
  const AdapterFiles* adapters = nullptr;  // where they are what is trained: written in place of the model
};

struct SaveOptions {
  std::filesystem::path output_dir;  // the run folder, on a disk that all ranks see
  bool save_only_model = false;      // no optimizer state: the checkpoint cannot be resumed
  int64_t save_total_limit = 0;      // older ones are removed, apart from the best; 0: none are
  int64_t max_shard_bytes = 5'000'000'000;
};

/// Writes checkpoint-<step>. When one rank fails, all throw its error, nothing is renamed and the temporary folder is
/// removed. Collective.
CheckpointSaved save_checkpoint(const CheckpointContents& contents, const SaveOptions& options, Communicator& data,
                                Communicator& control);

/// Where the run of a checkpoint stood. Its best checkpoint is the one of that name beside `dir`; where that is gone,
/// there is no best, only the step that it was of. Throws UserError(kCheckpoint).
TrainerState read_trainer_state(const std::filesystem::path& dir);

/// Verifies the manifest, reads optimizer state into a store whose weights were loaded from the same folder, and
/// returns where the run stood. Any world size and stage. Collective; throws UserError(kCheckpoint) on all ranks.
TrainerState resume_state(const std::filesystem::path& dir, ParamStore& store, Communicator& data,
                          Communicator& control);

/// The newest checkpoint-N in `dir` whose manifest holds; what is half-written or damaged is skipped with a notice.
std::optional<std::filesystem::path> latest_whole(const std::filesystem::path& dir, std::vector<std::string>& notices);

/// checkpoint-N folders in `dir`, whole or not, newest first.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& dir);

/// N of "checkpoint-N"; nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);

}  // namespace lockstep
