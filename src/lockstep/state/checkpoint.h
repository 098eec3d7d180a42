// Checkpoints: a Hugging Face folder plus sharded optimizer state and the trainer's place, written under a temporary
// name, sealed with a manifest, then renamed. A kill at any moment leaves the previous one whole.
//
// Example:
//   const CheckpointSaved saved = save_checkpoint(contents, {.output_dir = run_dir, .save_total_limit = 2}, data,
//   control); if (const auto last = latest_whole(run_dir, damaged)) resume_state(*last, store, data, control);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
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
  int64_t save_total_limit = 0;      // whole ones kept, the best among them; those before them go; 0: none do
  int64_t max_shard_bytes = 5'000'000'000;
  std::vector<std::filesystem::path> damaged = {};  // known not to be whole, besides those that lack bytes
};

/// Writes checkpoint-<step>. When one rank fails, all throw its error, nothing is renamed and the temporary folder is
/// removed; one that is sealed and cannot take its name stays. Collective.
CheckpointSaved save_checkpoint(const CheckpointContents& contents, const SaveOptions& options, Communicator& data,
                                Communicator& control);

/// Where the run of a checkpoint stood. Its best checkpoint is the one of that name beside `dir`; where that is gone,
/// there is no best, only the step that it was of. Throws UserError(kCheckpoint).
TrainerState read_trainer_state(const std::filesystem::path& dir);

/// Verifies the manifest, reads optimizer state into a store whose weights were loaded from the same folder, and
/// returns where the run stood. Any world size and stage. Collective; throws UserError(kCheckpoint) on all ranks.
TrainerState resume_state(const std::filesystem::path& dir, ParamStore& store, Communicator& data,
                          Communicator& control);

struct DamagedCheckpoint {
  std::filesystem::path path;
  std::string why;  // which file, expected and found
};

/// The newest checkpoint-N in `dir` whose manifest holds; those that are passed over on the way join `damaged`.
std::optional<std::filesystem::path> latest_whole(const std::filesystem::path& dir,
                                                  std::vector<DamagedCheckpoint>& damaged);

}  // namespace lockstep
