#include "lockstep/tasks/merge_adapter.h"

#include <algorithm>
#include <map>
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
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/merged_adapter.h"
#include "lockstep/tasks/copy_model.h"
#include "lockstep/tasks/new_folder.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/own_head.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kAtOnce = int64_t{16} << 20;  // elements of a tensor that are in memory together

class Merger {
 public:
  explicit Merger(const MergeOptions& options)
      : options_(options),
        folder_(options.model),
        weights_(open_weights(folder_.family, folder_.config)),
        keys_(KeyMap::match(folder_.model, weights_)),
        adapter_(AdapterFolder::open(options.adapter)),
        values_(folder_.model, weights_, keys_, adapter_,
                adapter_.match(folder_.model, naming_of_adapters(folder_.model, keys_.dialect()))) {
    if (options.verify) {
      verify_files(weights_.dir(), weights_.files());
      adapter_.verify();
    }
    merged_.untied = values_.untied();
  }

  Merged run() {
    const at::NoGradGuard no_grad;
    write_new_folder(options_.output, [&](const fs::path& dir) {
      write_weights_to(dir);
      write_files_to(dir);
    });
    return merged_;
  }

 private:
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
    for (const auto& key : values_.changed()) {
      const StoredPart part = keys_.on_disk(key);
      touched.insert(part.name);
      if (has(part.name)) continue;
      if (weights_.is_borrowed(part.name)) {
        throw usage_error(fmt::format("{} changes {}, which stands in another folder ({})", options_.adapter.string(),
                                      part.name, weights_.file_of(part.name)),
                          "train on from a checkpoint that holds its tower itself");
      }
      const ParamSource& from = values_.origin(key);
      specs.push_back({part.name, weights_.find(keys_.on_disk(from.key).name)->dtype, from.shape});
    }
    for (const auto& spec : specs) all_ += spec.bytes();
    SafetensorsWriter writer(dir, specs, {.max_shard_bytes = options_.max_shard_bytes});
    writer_ = &writer;
    for (const auto& spec : specs) dtypes_[spec.name] = spec.dtype;
    for (const auto& spec : specs) {
      if (!touched.contains(spec.name)) copy(spec);
    }
    for (const auto& source : all_sources()) {
      if (touched.contains(keys_.on_disk(source.key).name)) write(source);
    }
    writer.finish();
    merged_.tensors = static_cast<int64_t>(specs.size());
    merged_.changed = static_cast<int64_t>(touched.size());
  }

  void copy(const TensorSpec& spec) {
    copy_tensor(weights_, spec, *writer_);
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

  void tell(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, all_);
  }

  void put(const ParamSource& to, int64_t begin, const Tensor& values) {
    const StoredPart part = keys_.on_disk(to.key);
    const Tensor flat = to_dtype(values.reshape({-1}), dtypes_.at(part.name));
    for_each_piece(part.rows, to.shape, begin, begin + flat.numel(), [&](int64_t there, int64_t here, int64_t count) {
      writer_->write_flat(part.name, there, flat.narrow(0, here - begin, count));
    });
  }

  void write(const ParamSource& source) {
    const int64_t width = numel_of(source.shape) / std::max<int64_t>(1, source.shape[0]);
    const bool whole = values_.takes_whole_matrices() && values_.changes(source.key);
    const int64_t at_once = whole ? source.shape[0] : std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, width));
    for (int64_t row = 0; row < source.shape[0]; row += at_once) {
      put(source, row * width, values_.rows(source, row, std::min(at_once, source.shape[0] - row)));
    }
    tell(numel_of(source.shape) * dtype_bytes(dtypes_.at(keys_.on_disk(source.key).name)));
  }

  // --- files beside the weights ---

  void write_files_to(const fs::path& dir) {
    SideFiles files = folder_.side_files(/*whole=*/false);
    merged_.large = large_side_files(files);
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
    return lockstep::untied_config(parse_json(text, "config.json")).dump(2) + "\n";
  }

  const MergeOptions& options_;
  ModelFolder folder_;
  Weights weights_;
  KeyMap keys_;
  AdapterFolder adapter_;
  MergedAdapter values_;
  Merged merged_;
  SafetensorsWriter* writer_ = nullptr;
  std::map<std::string, Dtype> dtypes_;  // of the tensors that are written
  int64_t done_ = 0, all_ = 0;
};

}  // namespace

Merged merge_adapter(const MergeOptions& options) { return Merger(options).run(); }

}  // namespace lockstep
