// The weights of a checkpoint, under the names they came with.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

/// What the weights are written from.
struct ModelSource {
  const Model& model;
  const Weights& weights;  // where they were read: tensors that no block owns are copied from there
  const KeyMap& keys;
};

/// Whether tensors that the source borrows of another folder are saved with the others: where any of them is trained.
bool saves_borrowed(const ModelSource& source, const Plan& plan);
/// Whether something is trained, and all of it has names on disk that begin so.
bool trains_only(const ModelSource& source, const Plan& plan, const std::string& names);

/// Writes every tensor of the source: those of the model from the store as `dtype`, a stored tied head from the
/// tensor that it is tied to, all others as they are; what is borrowed as saves_borrowed() says. Files on rank 0 only; collective. Errors of writing come back as
/// an exception on rank 0 after all gathers are done, so that no rank waits.
void write_weights(const ModelSource& source, ParamStore& store, Communicator& comm, Dtype dtype,
                   int64_t max_shard_bytes, const std::filesystem::path& dir);

}  // namespace lockstep
