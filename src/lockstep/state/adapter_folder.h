// An adapter on disk: a folder in peft's format, read whoever wrote it and written so that peft opens it.
//
// Example:
//   const AdapterFolder folder = AdapterFolder::open(dir);
//   const AdapterMatch match = folder.match(model, naming);          // every tensor has found its module
//   store.load(weights, keys, AdapterValues(match.layout, &folder, match.where));
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/weights.h"
#include "lockstep/plan/adapter_match.h"
#include "lockstep/plan/quantisation.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class Communicator;
class KeyMap;
class ParamStore;

/// Whether a folder holds an adapter: it has an adapter_config.json, and is no model in which only that was left of one.
bool is_adapter_folder(const std::filesystem::path& dir);
/// Throws UserError(kCheckpoint) where it holds none, naming a folder inside that does.
void expect_adapter_folder(const std::filesystem::path& dir);

class AdapterFolder {
 public:
  /// adapter_config.json, and adapter_model.safetensors or .bin; beside them what ms-swift (vit.safetensors) and LLaVA
  /// (non_lora_trainables.bin) keep of parts that were trained whole. Throws UserError(kCheckpoint).
  static AdapterFolder open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const LoraConfig& config() const { return config_; }
  std::string fingerprint() const;  // of its files
  /// Compares them with the hashes that lockstep saves beside them, where there are some. Throws UserError(kCheckpoint).
  void verify() const;
  AdapterMatch match(const Model& model, const Dialect& naming) const;
  std::vector<AdapterTensor> tensors() const;
  /// Elements [begin, begin + out.numel()) of a part of a tensor whose shape is `shape`, into `out` (f32, host).
  void read_flat(const StoredPart& part, const Shape& shape, int64_t begin, const Tensor& out) const;
  Tensor read(const std::string& name) const;
  std::filesystem::path file_of(const std::string& name) const;  // of a tensor

 private:
  const Weights& holder_of(const std::string& name) const;

  std::filesystem::path dir_;
  LoraConfig config_;
  std::vector<std::shared_ptr<const Weights>> files_;
};

/// A [rank, in] and B [out, rank] with which an adapter begins that takes them out of its base: of the largest singular values
/// ("pissa"), or of a QR decomposition ("olora"). Source: peft 0.21.2 tuners/lora/layer.py pissa_init, olora_init.
struct LowRankFactors {
  Tensor a, b;
};
LowRankFactors began_as(const std::string& init, const Tensor& matrix, int64_t rank, double scale);

/// What an adapter's tensors begin with, whichever part of them a rank wants: those of a folder, or fresh ones. The same
/// for every number of ranks.
class AdapterValues {
 public:
  /// Fresh: A uniform as peft draws it (or normal: "gaussian"), B zero, magnitudes the norms of the model's own rows.
  AdapterValues(const Model& model, const AdapterLayout& layout, uint64_t seed);
  /// Of a folder, which stays open as long as this.
  AdapterValues(const Model& model, const AdapterLayout& layout, std::shared_ptr<const AdapterFolder> folder,
                std::map<std::string, StoredPart> where);

  /// Those of another adapter over the same base, whose tensors' keys end in `suffix`.
  void add(const std::string& suffix, AdapterValues other) { others_.emplace(suffix, std::move(other)); }

  /// Matrices that become codes while they are loaded: fresh magnitudes are those of what is computed with.
  void computed_with(std::shared_ptr<const Quantisation> quantised) { quantised_ = std::move(quantised); }

  /// Elements [begin, begin + out.numel()) of `source` into `out` (f32, host), of `weights` where it is the model's own.
  void read_flat(const ParamSource& source, int64_t begin, const Tensor& out, const Weights& weights,
                 const KeyMap& keys) const;
  /// The file that `source` is read from; none: it is fresh, or the model's own.
  std::optional<std::filesystem::path> file_of(const ParamSource& source) const;

 private:
  /// Whose a tensor is, and what it is called there.
  std::pair<const AdapterValues&, ParamSource> holder_of(const ParamSource& source) const;
  void fresh(const ParamSource& source, int64_t begin, const Tensor& out, const Weights& weights,
             const KeyMap& keys) const;

  struct Began {
    int64_t rank = 0;
    double scale = 1;
  };
  /// A matrix of the model without what its adapter began with.
  Tensor residual(const ParamSource& source, const Began& began, const Weights& weights, const KeyMap& keys) const;

  /// A matrix of the model as it is computed with, whole: [rows, columns] f32.
  Tensor matrix_of(const ParamSource& source, const Weights& weights, const KeyMap& keys) const;

  LoraConfig config_;
  std::shared_ptr<const Quantisation> quantised_;
  std::map<std::string, Began> changed_;  // matrices that the adapter changes, by their keys
  uint64_t seed_ = 0;
  std::shared_ptr<const AdapterFolder> folder_;
  std::map<std::string, StoredPart> where_;
  std::map<std::string, AdapterValues> others_;  // by the ends of their keys
  std::map<std::string, ParamSource> owners_;    // of a module's tensors: the matrix, by its key
  std::set<std::string> tables_;                 // of these, those whose rows are looked up
  std::map<std::string, std::string> untied_;    // a tied head's own key -> where its values stand
};

/// What a saved adapter says of itself beside its tensors.
struct AdapterFiles {
  const Model& model;
  const AdapterLayout& layout;
  std::shared_ptr<const AdapterFolder> from;  // whose tensors these are; may be null
  std::vector<CarriedTensor> carried;
};

/// adapter_config.json, adapter_model.safetensors, vit.safetensors where components are trained whole, README.md. Files on
/// rank 0 only; collective, and errors of writing are thrown there after all gathers are done.
void write_adapter(const AdapterFiles& files, ParamStore& store, Communicator& comm, const std::filesystem::path& dir);

}  // namespace lockstep
