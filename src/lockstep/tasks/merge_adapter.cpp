#include "lockstep/tasks/merge_adapter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/tasks/new_folder.h"
#include "lockstep/tensor/finite.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kAtOnce = int64_t{16} << 20;  // elements of a tensor that are in memory together

/// What changes one tensor of the model: its rows go to `to`, and begin as those of `from`.
struct Change {
  ParamSource from, to;
  const AdaptedModule* module = nullptr;  // null: `to` stands in the adapter's files
  std::string key;                        // of the module's A there
};

class Merger {
 public:
  explicit Merger(const MergeOptions& options)
      : options_(options),
        folder_({options.model, options.vision_tower}),
        weights_(open_weights(folder_.family, folder_.config)),
        keys_(KeyMap::match(folder_.model, weights_)),
        adapter_(AdapterFolder::open(options.adapter)),
        match_(adapter_.match(folder_.model, naming_of_adapters(folder_.model, keys_.dialect()))) {}

  Merged run() {
    const at::NoGradGuard no_grad;
    find_changes();
    write_new_folder(options_.output, [&](const fs::path& dir) {
      write_weights_to(dir);
      write_files_to(dir);
    });
    return merged_;
  }

 private:
  /// Of the tensors that blocks compute with, and of those that no block reads and the adapter has parts of all the same.
  void find_changes() {
    const auto& layout = match_.layout;
    const bool splits = splits_tied();
    merged_.untied = splits;
    for (const auto& block : folder_.model.blocks) {
      for (const auto& spec : block->params()) {
        for (const auto& source : spec.sources) {
          const std::string& own = spec.tied ? spec.untied_key : source.key;
          if (spec.tied && !splits) continue;
          if (layout.saved.contains(own) || match_.where.contains(own)) {
            changes_[own] = {.from = source, .to = {own, source.shape}};
          } else if (spec.tied) {
            changes_[own] = {.from = source, .to = {own, source.shape}, .module = &nothing_};
          }
        }
      }
    }
    for (const auto& one : layout.modules) add_module(one);
    for (const auto& source : folder_.model.unused) add_idle(source);
  }

  /// Embedding and head are one tensor of the base, and will be two.
  bool splits_tied() const {
    for (const auto& block : folder_.model.blocks) {
      for (const auto& spec : block->params()) {
        if (!spec.tied) continue;
        const auto changed = [&](const std::string& key) {
          const std::string module = key.substr(0, key.rfind('.'));
          return match_.layout.saved.contains(key) || std::ranges::any_of(match_.where, [&](const auto& one) {
                   return one.first.starts_with(module + ".lora_");
                 });
        };
        if (changed(spec.untied_key) || changed(spec.sources[0].key)) return true;
      }
    }
    return false;
  }

  void add_module(const AdaptedModule& one) {
    const ParamSpec& spec = folder_.model.blocks[one.module.block]->params()[one.module.param];
    for (size_t i = 0; i < one.module.sources; ++i) {
      const ParamSource& source = spec.sources[one.module.first_source + i];
      const std::string& own = spec.tied ? spec.untied_key : source.key;
      changes_[own] = {.from = source, .to = {own, source.shape}, .module = &one, .key = base_key(spec, one)};
      if (!match_.layout.config.lora_bias) continue;
      const std::string bias = without_weight(own) + ".bias";
      biases_[bias] = {&one, without_weight(own)};
    }
  }

  void add_idle(const ParamSource& source) {
    const std::string there = stored_part(match_.naming_of_files, source.key).name;
    if (const auto whole = whole_idle(there); !whole.empty()) {
      match_.where[source.key] = {whole, {}};
      changes_[source.key] = {.from = source, .to = source};
      return;
    }
    if (!source.key.ends_with(".weight")) return;
    const std::string name = "base_model.model." + without_weight(there) + ".lora_A.weight";
    if (std::ranges::find(match_.idle, name) == match_.idle.end()) return;
    const std::string module = without_weight(there);
    const int64_t rank = shape_of(adapter_.read(name))[0];
    const std::string key = without_weight(source.key);
    for (const char* part : {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"}) {
      match_.where[key + part] = {"base_model.model." + module + part, {}};
    }
    idle_.push_back(std::make_unique<AdaptedModule>(
        AdaptedModule{{.name = module, .rows = source.shape[0]}, rank, match_.layout.config.scale_of(module, rank)}));
    changes_[source.key] = {.from = source, .to = source, .module = idle_.back().get(), .key = key};
  }

  /// The tensor of the adapter's files that stands for one of the model that nothing is computed with; "": none.
  std::string whole_idle(const std::string& there) const {
    const size_t leaf = there.rfind('.');
    std::string inside = there;
    if (leaf != std::string::npos) inside.insert(leaf, ".base_layer");
    for (const std::string& name : {"base_model.model." + there, "base_model.model." + inside, there}) {
      if (std::ranges::find(match_.idle, name) != match_.idle.end()) return name;
    }
    return "";
  }

  static std::string without_weight(const std::string& key) {
    return key.ends_with(".weight") ? key.substr(0, key.size() - 7) : key;
  }
  static std::string base_key(const ParamSpec& spec, const AdaptedModule& one) {
    return without_weight(spec.tied ? spec.untied_key : spec.sources[one.module.first_source].key);
  }

  // --- weights ---

  void write_weights_to(const fs::path& dir) {
    std::vector<TensorSpec> specs;
    for (const auto& spec : weights_.specs()) {
      if (!weights_.is_borrowed(spec.name)) specs.push_back(spec);
    }
    const auto has = [&](const std::string& name) {
      return std::ranges::any_of(specs, [&](const auto& spec) { return spec.name == name; });
    };
    std::set<std::string> touched;
    for (const auto& [key, change] : changes_) {
      const StoredPart part = keys_.on_disk(key);
      touched.insert(part.name);
      if (has(part.name)) continue;
      if (weights_.is_borrowed(part.name)) {
        throw usage_error(fmt::format("{} changes {}, which stands in another folder ({})", options_.adapter.string(),
                                      part.name, weights_.file_of(part.name)),
                          "train on from a checkpoint that holds its tower itself");
      }
      specs.push_back({part.name, weights_.find(keys_.on_disk(change.from.key).name)->dtype, change.to.shape});
    }
    for (const auto& [key, bias] : biases_) {
      touched.insert(keys_.on_disk(key).name);
      if (has(keys_.on_disk(key).name)) continue;
      throw usage_error(fmt::format("{}: lora_B has a bias, and the model has none to put it into", bias.second),
                        "use the adapter as it is, with --adapters");
    }
    for (const auto& spec : specs) all_ += spec.bytes();
    SafetensorsWriter writer(dir, specs, {.max_shard_bytes = options_.max_shard_bytes});
    writer_ = &writer;
    dtypes_.clear();
    for (const auto& spec : specs) dtypes_[spec.name] = spec.dtype;
    for (const auto& spec : specs) {
      if (!touched.contains(spec.name)) copy(spec);
    }
    for (const auto& source : all_sources()) {
      if (touched.contains(keys_.on_disk(source.key).name)) write_source(source);
    }
    writer.finish();
    merged_.tensors = static_cast<int64_t>(specs.size());
    merged_.changed = static_cast<int64_t>(touched.size());
  }

  void copy(const TensorSpec& spec) {
    const int64_t numel = numel_of(spec.shape);
    for (int64_t begin = 0; begin < numel || begin == 0; begin += kAtOnce) {
      const Tensor part = empty({std::min(kAtOnce, numel - begin)}, spec.dtype);
      weights_.read_flat(spec.name, begin, part);
      writer_->write_flat(spec.name, begin, part);
      if (numel == 0) break;
    }
    tell(spec.bytes());
  }

  /// All tensors of the model by their canonical keys: a head that gets weights of its own among them.
  std::vector<ParamSource> all_sources() const {
    std::vector<ParamSource> out = folder_.model.unused;
    for (const auto& block : folder_.model.blocks) {
      for (const auto& spec : block->params()) {
        if (spec.tied && !merged_.untied) continue;
        for (const auto& source : spec.sources) out.push_back({spec.tied ? spec.untied_key : source.key, source.shape});
      }
    }
    return out;
  }

  void write_source(const ParamSource& source) {
    if (const auto change = changes_.find(source.key); change != changes_.end()) return write(change->second);
    if (const auto bias = biases_.find(source.key); bias != biases_.end()) {
      return write_bias(source, *bias->second.first, bias->second.second);
    }
    write({.from = source, .to = source, .module = &nothing_});  // the other rows of a tensor that changes
  }

  void tell(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, all_);
  }

  void put(const ParamSource& to, int64_t begin, const Tensor& values) {
    if (!all_finite(values)) {
      throw UserError(ExitCode::kNumerics, fmt::format("{}: merged, it is not finite", to.key),
                      "the adapter's training had diverged: take an earlier checkpoint");
    }
    const StoredPart part = keys_.on_disk(to.key);
    const Tensor flat = to_dtype(values.reshape({-1}), dtypes_.at(part.name));
    for_each_piece(part.rows, to.shape, begin, begin + flat.numel(), [&](int64_t there, int64_t here, int64_t count) {
      writer_->write_flat(part.name, there, flat.narrow(0, here - begin, count));
    });
  }

  void write(const Change& change) {
    const int64_t width = numel_of(change.to.shape) / std::max<int64_t>(1, change.to.shape[0]);
    const bool whole = match_.layout.config.changes_base() && change.module != nullptr && change.module != &nothing_;
    const int64_t rows_at_once =
        whole ? change.to.shape[0] : std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, width));
    prepare(change, width, rows_at_once);
    for (int64_t row = 0; row < change.to.shape[0]; row += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, change.to.shape[0] - row);
      const Tensor values = empty({rows * width}, Dtype::kF32);
      if (change.module == nullptr) {
        adapter_.read_flat(match_.where.at(change.to.key), change.to.shape, row * width, values);
      } else {
        keys_.read_flat(weights_, change.from, row * width, values);
      }
      const Tensor matrix = values.view({rows, width});
      if (change.module != nullptr && change.module != &nothing_) add(change, row, matrix);
      put(change.to, row * width, matrix);
    }
    tell(numel_of(change.to.shape) * dtype_bytes(dtypes_.at(keys_.on_disk(change.to.key).name)));
  }

  Tensor read(const std::string& key, const Shape& shape) const {
    const Tensor flat = empty({numel_of(shape)}, Dtype::kF32);
    adapter_.read_flat(match_.where.at(key), shape, 0, flat);
    return flat.view(shape);
  }

  /// A and B of a change, and what DoRA divides by.
  void prepare(const Change& change, int64_t width, int64_t rows_at_once) {
    if (change.module == nullptr || change.module == &nothing_) return;
    const AdaptedModule& one = *change.module;
    const bool table = one.module.table;
    const int64_t rows = change.to.shape[0];
    const std::string own = without_weight(change.to.key);
    a_ = table ? read(change.key + ".lora_embedding_A", {one.rank, rows})
               : read(change.key + ".lora_A.weight", {one.rank, width});
    b_ = table ? read(own + ".lora_embedding_B", {width, one.rank}) : read(own + ".lora_B.weight", {rows, one.rank});
    magnitude_ = Tensor();
    if (!match_.layout.config.dora) return;
    magnitude_ = read(own + ".lora_magnitude_vector", {table ? width : rows});
    if (!table) return;
    Tensor squares = zeros({width}, Dtype::kF64);  // over the rows of the table
    for (int64_t row = 0; row < rows; row += rows_at_once) {
      const int64_t count = std::min(rows_at_once, rows - row);
      const Tensor values = empty({count * width}, Dtype::kF32);
      keys_.read_flat(weights_, change.from, row * width, values);
      const Tensor sum = values.view({count, width}).add(delta(one, row, count));
      squares.add_(to_dtype(sum, Dtype::kF64).square_().sum(0));
    }
    column_norms_ = to_dtype(squares.sqrt(), Dtype::kF32);
  }

  Tensor delta(const AdaptedModule& one, int64_t row, int64_t rows) const {
    if (one.module.table) return fn::product(a_.narrow(1, row, rows).t().contiguous(), b_.t()).mul_(one.scale);
    return fn::product(b_.narrow(0, row, rows), a_).mul_(one.scale);
  }

  void add(const Change& change, int64_t row, const Tensor& matrix) const {
    const AdaptedModule& one = *change.module;
    if (match_.layout.config.changes_base()) {
      const LowRankFactors began = began_as(match_.layout.config.init, matrix, one.rank, one.scale);
      matrix.sub_(began.b.matmul(began.a), one.scale);
    }
    Tensor added = delta(one, row, matrix.size(0));
    // As peft does: a table's is rounded before it is added.
    const Dtype stored = dtypes_.at(keys_.on_disk(change.to.key).name);
    if (one.module.table && !magnitude_.defined()) added = to_dtype(to_dtype(added, stored), Dtype::kF32);
    matrix.add_(added);
    if (!magnitude_.defined()) return;
    if (one.module.table) {
      matrix.mul_(magnitude_.div(column_norms_));
    } else {
      matrix.mul_(magnitude_.narrow(0, row, matrix.size(0)).div(matrix.norm(2, 1)).unsqueeze(1));
    }
  }

  void write_bias(const ParamSource& to, const AdaptedModule& one, const std::string& module) {
    const Tensor values = empty(to.shape, Dtype::kF32), added = empty(to.shape, Dtype::kF32);
    keys_.read_flat(weights_, to, 0, values);
    adapter_.read_flat(match_.where.at(module + ".lora_B.bias"), to.shape, 0, added);
    put(to, 0, values.add_(added, one.scale));
  }

  // --- files beside the weights ---

  void write_files_to(const fs::path& dir) const {
    SideFiles files = folder_.side_files(/*whole=*/false);
    for (auto& file : files) {
      auto* text = std::get_if<std::string>(&file.bytes);
      if (file.name != "config.json" || text == nullptr) continue;
      if (merged_.untied) *text = untied_config(*text);
      if (weights_.any_quantised()) *text = unquantised_config(*text);
    }
    write_side_files(files, std::nullopt, dir);
  }

  /// Codes have become values again.
  static std::string unquantised_config(const std::string& text) {
    Json config = parse_json(text, "config.json");
    config.erase("quantization_config");
    return config.dump(2) + "\n";
  }

  static std::string untied_config(const std::string& text) {
    Json config = parse_json(text, "config.json");
    for (const char* part : {"text_config", "llm_config"}) {
      if (config.contains(part) && config[part].contains("tie_word_embeddings"))
        config[part]["tie_word_embeddings"] = false;
    }
    config["tie_word_embeddings"] = false;
    return config.dump(2) + "\n";
  }

  const MergeOptions& options_;
  ModelFolder folder_;
  Weights weights_;
  KeyMap keys_;
  AdapterFolder adapter_;
  AdapterMatch match_;
  Merged merged_;
  std::map<std::string, Change> changes_;  // by the key of what is written
  std::map<std::string, std::pair<const AdaptedModule*, std::string>> biases_;
  std::vector<std::unique_ptr<AdaptedModule>> idle_;
  AdaptedModule nothing_;  // of a tensor that only gets a name of its own
  SafetensorsWriter* writer_ = nullptr;
  std::map<std::string, Dtype> dtypes_;  // of the tensors that are written
  int64_t done_ = 0, all_ = 0;
  Tensor a_, b_, magnitude_, column_norms_;
};

}  // namespace

Merged merge_adapter(const MergeOptions& options) { return Merger(options).run(); }

}  // namespace lockstep
