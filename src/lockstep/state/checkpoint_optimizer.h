// Sharded optimizer state on disk: each rank writes what it owns; any number of ranks, in any stage, reads it back.
#pragma once

#include <filesystem>

#include "lockstep/state/param_store.h"

namespace lockstep {

/// "optimizer-00000-of-00002.safetensors".
std::string optimizer_file_name(int rank, int world);

/// Writes this rank's shard of master, exp_avg, exp_avg_sq of every trained unit (no master where the weights are
/// float32: they are it), with unit, range and update count in the header. Throws UserError(kCheckpoint).
void write_optimizer_shard(const ParamStore& store, int world, const std::filesystem::path& dir);

/// Fills the store's optimizer state from all shards of the folder, whatever world and stage wrote them; masters that
/// are not there stay as the weights set them. Follow with ParamStore::publish_all. Throws UserError(kCheckpoint): no
/// shards, shards missing, other units trained than there, moments missing behind updates or with what is no number.
void read_optimizer_shards(ParamStore& store, const std::filesystem::path& dir);

}  // namespace lockstep
