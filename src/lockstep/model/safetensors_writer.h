// Writes safetensors files whose tensors are known beforehand and arrive one after another: no copy of the model is
// held.
//
// Example:
//   SafetensorsWriter out(dir, specs, {.max_shard_bytes = 5e9});   // model.safetensors, or shards + index
//   for (…) out.write(key, tensor);                                 // in the order of specs
//   out.finish();
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

struct SafetensorsOptions {
  int64_t max_shard_bytes = 5'000'000'000;
  std::string stem = "model";  // model.safetensors | model-00001-of-00002.safetensors + model.safetensors.index.json
  std::map<std::string, std::string> metadata{{"format", "pt"}};
};

class SafetensorsWriter {
 public:
  /// Throws UserError(kCheckpoint) when the folder cannot be written.
  SafetensorsWriter(const std::filesystem::path& dir, std::vector<TensorSpec> specs, SafetensorsOptions options = {});
  ~SafetensorsWriter();

  /// Any order. Converts to the dtype of its spec. Throws on a wrong shape or a full disk (bytes needed and left).
  void write(const std::string& key, const Tensor& value);
  /// Elements [begin, begin + values.numel()) of the flattened tensor.
  void write_flat(const std::string& key, int64_t begin, const Tensor& values);
  /// fsyncs; throws InternalError when bytes are missing. Returns the files written.
  std::vector<std::string> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
