// An adapter put into its model: a folder like the base's, which whoever opens the base can open.
//
// Example:
//   merge_adapter({.model = "base", .adapter = "output/checkpoint-20", .output = "merged"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/model/model_place.h"

namespace lockstep {

struct MergeOptions {
  ModelPlace model;
  std::filesystem::path adapter;
  std::filesystem::path output;  // must not be there, or be empty
  bool verify = true;            // what is read is compared with the hashes that stand beside it
  int64_t max_shard_bytes = 5'000'000'000;
  std::function<void(int64_t done, int64_t all)> progress{};  // bytes
};

struct Merged {
  int64_t changed = 0, tensors = 0;  // of the folder's tensors
  bool untied = false;               // the head has weights of its own now, and config.json says so
  std::string large;                 // what is unusual beside the weights: large_side_files()
};

/// Some rows of one tensor are in memory at a time, each sum is made in float32 and rounded once; tensors that the adapter
/// does not change, and all files beside the weights, are copied byte for byte. Written under a temporary name, then
/// renamed. Throws UserError.
Merged merge_adapter(const MergeOptions& options);

}  // namespace lockstep
