// The tensors of a Hugging Face folder: single or sharded safetensors, or PyTorch's own files (pytorch_model.bin),
// memory-mapped, read by slices.
//
// Example:
//   const Weights weights = Weights::open(dir);                 // and weights.borrow({tower, {"vision_model."}, "…"})
//   weights.read("model.norm.weight", out);                     // whole tensor, converted to out's dtype
//   weights.read_flat("lm_head.weight", 4096, slice);           // elements [4096, 4096 + slice.numel())
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

struct QuantisedTensor;

/// Tensors of another folder, under names of the model's files.
struct BorrowedTensors {
  std::filesystem::path dir;
  std::vector<std::string> from;  // beginnings of their names there: the first with which any begins
  std::string to;                 // what stands in its place here
  bool kept = false;              // they count as the folder's own: it must have none, and is saved with them
};

/// A tensor that stands in no file: uniform within +-bound, the same for (seed, name) on every rank.
struct MadeTensor {
  TensorSpec spec;
  double bound = 0;
  uint64_t seed = 0;
};

class Weights {
 public:
  /// `dir`: a folder, or one .safetensors or .bin file. Reads headers only; safetensors come first where a folder has
  /// both. Throws UserError(kCheckpoint): missing, truncated (bytes expected and found), overlapping, bad JSON, an index
  /// naming a tensor or file that is not there, a pickle that speaks of more than tensors.
  static Weights open(const std::filesystem::path& dir);
  /// Takes tensors of another folder in, mapped and read as our own, unless names of our own begin with `to` already.
  /// Throws as open() does, and where no name there begins as asked; UserError(kUsage): kept ones stand in both.
  void borrow(const BorrowedTensors& part);
  void make(MadeTensor tensor);  // unless the files have one of its name
  /// A matrix of the files has `rows` rows: the first of its own, and behind them their mean. Source: transformers'
  /// resize_token_embeddings, but for its noise. Throws UserError(kCheckpoint): it is kept as codes.
  void set_rows(const std::string& key, int64_t rows);
  bool is_borrowed(const std::string& key) const;  // and not kept
  bool borrows() const;                            // anything that is not kept
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  const TensorSpec* find(const std::string& key) const;  // nullptr when absent; key as in the file
  std::vector<TensorSpec> specs() const;                 // all, in the order of the files
  std::string file_of(const std::string& key) const;     // its name; of a borrowed tensor the whole path

  /// Copies elements [begin, begin + out.numel()) of the flattened tensor into `out` (contiguous, host), converting the
  /// dtype.
  void read_flat(const std::string& key, int64_t begin, const Tensor& out) const;
  Tensor read(const std::string& key) const;  // whole, in the file's dtype
  /// Of a matrix that the files keep as codes, which is otherwise like any other in the dtype that it had; nullptr: it is
  /// kept as it is.
  const QuantisedTensor* quantised(const std::string& key) const;
  bool any_quantised() const;
  bool same_bytes(const std::string& one, const std::string& two) const;  // of one file: as torch saves tied tensors
  /// Bytes of such a one as QuantLayout lays them, and its scales as numbers.
  void read_quantised(const std::string& key, int64_t begin, std::span<uint8_t> out) const;
  void read_scales(const std::string& key, int64_t first, std::span<float> out) const;
  int64_t total_bytes() const;               // of tensors, without headers; shared bytes count for each
  int64_t borrowed_bytes() const;            // of these
  std::vector<std::string> files() const;    // names in the folder, without borrowed ones
  const std::filesystem::path& dir() const;  // where config.json stands
  const std::vector<std::filesystem::path>& borrowed_from() const;  // the other folders

 private:
  void read_own(const std::string& key, int64_t begin, const Tensor& out) const;
  std::vector<float> mean_row(const std::string& key, int64_t rows, int64_t width) const;
  struct Impl;
  explicit Weights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
