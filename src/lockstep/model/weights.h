// The tensors of a Hugging Face folder: single or sharded safetensors, or PyTorch's own files (pytorch_model.bin),
// memory-mapped, read by slices.
//
// Example:
//   const Weights weights = Weights::open(dir);
//   weights.read("model.norm.weight", out);                     // whole tensor, converted to out's dtype
//   weights.read_flat("lm_head.weight", 4096, slice);           // elements [4096, 4096 + slice.numel())
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

class Weights {
 public:
  /// `dir`: a folder, or one .safetensors or .bin file. Reads headers only; safetensors come first where a folder has
  /// both. Throws UserError(kCheckpoint): missing, truncated (bytes expected and found), overlapping, bad JSON, an index
  /// naming a tensor or file that is not there, a pickle that speaks of more than tensors.
  static Weights open(const std::filesystem::path& dir);
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  const TensorSpec* find(const std::string& key) const;  // nullptr when absent; key as in the file
  std::vector<TensorSpec> specs() const;                 // all, in the order of the files
  std::string file_of(const std::string& key) const;

  /// Copies elements [begin, begin + out.numel()) of the flattened tensor into `out` (contiguous, host), converting the
  /// dtype.
  void read_flat(const std::string& key, int64_t begin, const Tensor& out) const;
  Tensor read(const std::string& key) const;  // whole, in the file's dtype
  int64_t total_bytes() const;                // of tensors, without headers; shared bytes count for each
  std::vector<std::string> files() const;     // names in the folder
  const std::filesystem::path& dir() const;   // where config.json stands

 private:
  struct Impl;
  explicit Weights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
