// The Hugging Face part of a checkpoint: weights under the names they came with, and the files that stand beside them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/weights.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

/// A model folder's files besides weights (config, tokenizer, processor, chat template …), held in memory: the folder
/// may be a checkpoint that is pruned before the next save.
using SideFiles = std::vector<std::pair<std::string, std::string>>;  // relative name, bytes

/// Leaves out weights of any kind, optimizer files, and what a run writes itself. Throws UserError(kCheckpoint).
SideFiles read_side_files(const std::filesystem::path& dir);

/// Writes side files; config.json gets the dtype of the weights, under the key that it uses.
void write_side_files(const SideFiles& files, Dtype dtype, const std::filesystem::path& dir);

/// What the weights are written from.
struct ModelSource {
  const Model& model;
  const Weights& weights;  // where they were read: tensors that no block owns are copied from there
  const KeyMap& keys;
};

/// Writes every tensor of the source: those of the model from the store as `dtype`, a stored tied head from the
/// tensor that it is tied to, all others as they are. Files on rank 0 only; collective. Errors of writing come back as
/// an exception on rank 0 after all gathers are done, so that no rank waits.
void write_weights(const ModelSource& source, ParamStore& store, Communicator& comm, Dtype dtype,
                   int64_t max_shard_bytes, const std::filesystem::path& dir);

}  // namespace lockstep
