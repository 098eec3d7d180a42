// A head that the files have twice: config.json ties it to the embedding, and it is stored all the same.
//
// Example:
//   const auto head = find_stored_head(model, weights);
//   if (head && !head->equal) …   // transformers 5 does not tie it then
#pragma once

#include <optional>
#include <string>

#include "lockstep/model/model.h"

namespace lockstep {

class Weights;

struct StoredHead {
  std::string head, embedding;  // their names in the files
  bool same_shape = true, equal = true;
};

/// Of a head that the model ties, where both tensors are stored; nullopt: none is. Only then are values read, piece by piece
/// and up to the first that differs.
std::optional<StoredHead> find_stored_head(const Model& model, const Weights& weights);

}  // namespace lockstep
