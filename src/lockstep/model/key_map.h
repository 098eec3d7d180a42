// Which tensor of a folder's files holds each tensor of a model, under the names of whoever wrote it.
//
// Example:
//   const KeyMap keys = KeyMap::match(model, weights);
//   keys.read_flat(weights, source, begin, slice);   // elements of the model's tensor, wherever they lie
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/dialect.h"
#include "lockstep/model/model.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

class SafetensorsWriter;
class Weights;

/// Canonical keys -> tensors of these files or rows of them, by the dialect under which the most keys are found.
class KeyMap {
 public:
  /// Checks every parameter of the model: throws UserError(kCheckpoint) naming the tensor, both shapes, the config key
  /// that gave the expected one, the nearest name when missing, how many are missing, and the two dialects where a
  /// folder mixes them. A tensor that no block reads is refused as well, but for what the model carries through and what
  /// every reader ignores (Unmatched::derived, a tied head that is stored); so is a folder without what is promised.
  static KeyMap match(const Model& model, const Weights& weights);
  /// The identity, for checkpoints written from scratch.
  static KeyMap canonical() { return {}; }

  StoredPart on_disk(const std::string& canonical_key) const { return stored_part(dialect_, canonical_key); }
  const std::string& dialect() const { return dialect_.name; }

  /// Elements [begin, begin + out.numel()) of the flattened tensor `source` into `out` (contiguous, host), converting
  /// the dtype.
  void read_flat(const Weights& weights, const ParamSource& source, int64_t begin, const Tensor& out) const;
  Tensor read(const Weights& weights, const ParamSource& source) const;  // whole, in the file's dtype

 private:
  Dialect dialect_{"released", {}};
};

/// A whole tensor of the model into its part of a file's tensor.
void write_part(SafetensorsWriter& writer, const StoredPart& part, const Tensor& value);

/// What stands in the files and no block uses.
struct Unmatched {
  std::vector<std::string> extra;    // tensors that are not read, by their names in the files
  std::vector<std::string> derived;  // buffers that old versions saved and every reader recomputes: inv_freq, …
  std::vector<std::string> notices;  // sentences a person should see: a tied head that is stored nevertheless, …
  std::vector<std::string> carried;  // of Model::carried: saved as they are
};
Unmatched unmatched(const Model& model, const Weights& weights, const KeyMap& keys);

}  // namespace lockstep
