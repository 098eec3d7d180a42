// A model's tensors with an adapter put into them: sums are made in float32, some rows at a time.
//
// Example:
//   MergedAdapter merged(model, weights, keys, folder, folder.match(model, naming));
//   if (merged.changes(source.key)) merged.read_flat(source, begin, out);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/state/adapter_folder.h"

namespace lockstep {

class MergedAdapter {
 public:
  /// Borrows all but `match`.
  MergedAdapter(const Model& model, const Weights& weights, const KeyMap& keys, const AdapterFolder& adapter,
                AdapterMatch match);

  /// Embedding and head are one tensor of the base and differ now.
  bool untied() const { return untied_; }
  bool changes(const std::string& key) const { return changes_.contains(key); }
  std::vector<std::string> changed() const;
  /// The base's tensor that a changed one is made of.
  const ParamSource& origin(const std::string& key) const { return changes_.at(key).from; }
  /// It takes a whole matrix in memory to know any part of it.
  bool takes_whole_matrices() const { return match_.layout.config.changes_base(); }

  /// Rows [row, row + count) -> [count, width] f32 on the host; a vector's numbers are rows of one. Of tensors that do not
  /// change as well. Throws UserError(kNumerics): what comes of it is not finite.
  Tensor rows(const ParamSource& source, int64_t row, int64_t count);
  /// Elements [begin, begin + out.numel()) into `out`.
  void read_flat(const ParamSource& source, int64_t begin, const Tensor& out);

 private:
  enum class Way : uint8_t {
    kCopied,  // only the name is another
    kStored,  // the adapter's files hold it
    kAdded,   // A and B are added
    kBias,    // B's bias is added
  };
  struct Change {
    ParamSource from;
    Way way = Way::kCopied;
    const AdaptedModule* module = nullptr;  // of what is added
    std::string a_key;                      // of the module's A
  };

  void add_model();
  bool splits_tied() const;
  void add_module(const AdaptedModule& one);
  void add_idle(const ParamSource& source);
  void add_bias(const std::string& module, int64_t rows, const AdaptedModule& of);
  bool is_idle(const std::string& name) const;
  std::string whole_idle(const std::string& there) const;
  Tensor stored(const std::string& key, const Shape& shape) const;
  Tensor base(const ParamSource& from, int64_t row, int64_t count, int64_t width) const;
  void prepare(const ParamSource& source, const Change& change);
  Tensor delta(const AdaptedModule& one, int64_t row, int64_t count) const;
  void add(const Change& change, int64_t row, const Tensor& matrix) const;
  Tensor changed_rows(const ParamSource& source, const Change& change, int64_t row, int64_t count);

  const Model& model_;
  const Weights& weights_;
  const KeyMap& keys_;
  const AdapterFolder& adapter_;
  AdapterMatch match_;
  bool untied_ = false;
  std::map<std::string, Change> changes_;  // by the key of what comes of it
  std::vector<std::unique_ptr<AdaptedModule>> idle_;
  std::string prepared_;  // whose these are
  Tensor a_, b_, magnitude_, column_norms_;
};

}  // namespace lockstep
