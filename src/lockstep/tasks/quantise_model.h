// A model's matrices made codes of few bits: a folder that transformers opens with bitsandbytes, and lockstep too.
//
// Example:
//   quantise_model({.model = "Qwen2.5-VL-3B-Instruct", .output = "Qwen2.5-VL-3B-Instruct-BNB-Int4", .quant = {.bits = 4}});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/session/run_options.h"

namespace lockstep {

struct QuantiseOptions {
  ModelPlace model;
  std::filesystem::path output;  // must not be there, or be empty
  bool verify = true;            // what is read is compared with the hashes that stand beside it
  QuantOptions quant;
  std::optional<Dtype> compute = {};  // what others shall compute in; nullopt: what config.json says
  int64_t max_shard_bytes = 5'000'000'000;
  std::function<void(int64_t done, int64_t all)> progress{};  // bytes that are written
};

struct QuantisedModel {
  int64_t matrices = 0, bytes_before = 0, bytes = 0;
  std::string large;  // what is unusual beside the weights: large_side_files()
};

/// One matrix is in memory at a time; what is not made codes, and all files beside the weights, are copied byte for byte;
/// config.json says what was done. Written under a temporary name, then renamed. Throws UserError.
QuantisedModel quantise_model(const QuantiseOptions& options);

}  // namespace lockstep
