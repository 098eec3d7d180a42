// A model's folder without what a run keeps beside it: weights, config, tokenizer. What stood in several places is one folder then.
//
// Example:
//   copy_model({.model = "output/checkpoint-20", .output = "released"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/model/model_place.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

class SafetensorsWriter;
class Weights;

struct CopyOptions {
  ModelPlace model;
  std::filesystem::path output;  // must not be there, or be empty
  bool verify = true;            // what is read is compared with the hashes that stand beside it
  int64_t max_shard_bytes = 5'000'000'000;
  std::function<void(int64_t done, int64_t all)> progress{};  // bytes
};

struct Copied {
  int64_t tensors = 0, bytes = 0;
  std::string large;  // what is unusual beside the weights: large_side_files()
};

/// Tensors in the dtypes that they have; those of a tower in another folder stay there. Written under a temporary name, then
/// renamed. Throws UserError; kUsage: the folder's matrices are codes.
Copied copy_model(const CopyOptions& options);

/// One tensor as it is, some of its elements in memory at a time.
void copy_tensor(const Weights& weights, const TensorSpec& spec, SafetensorsWriter& writer);

}  // namespace lockstep
