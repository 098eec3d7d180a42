#include "lockstep/state/adapter_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/param_store.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr std::array kTensors = {"adapter_model.safetensors", "adapter_model.bin"};
/// Parts that were trained whole: of ms-swift's lora_llm, and of LLaVA's own training.
constexpr std::array kBeside = {"vit.safetensors", "non_lora_trainables.bin"};
constexpr const char* kWhole = "vit";

std::string base_of(const std::string& key) { return key.substr(0, key.find(".lora_")); }
bool is_adapters(const std::string& key) { return key.find(".lora_") != std::string::npos; }

}  // namespace

bool is_adapter_folder(const fs::path& dir) {
  const bool has_tensors = std::ranges::any_of(kTensors, [&](const char* name) { return fs::exists(dir / name); });
  return fs::exists(dir / kConfig) && (has_tensors || !fs::exists(dir / "config.json"));
}

void expect_adapter_folder(const fs::path& dir) {
  if (is_adapter_folder(dir)) return;
  std::string inside;
  if (fs::is_directory(dir)) {
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.is_directory() && is_adapter_folder(entry.path())) inside = entry.path().string();
    }
  }
  throw checkpoint_error(
      fmt::format("{}: expected a folder with {}, found {}", dir.string(), kConfig,
                  fs::exists(dir / kConfig) ? "a model's config.json beside it and no adapter's tensors"
                  : fs::is_directory(dir)   ? "none in it"
                                            : "no such folder"),
      inside.empty() ? "name the folder that peft, ms-swift or lockstep saved an adapter in"
                     : "did you mean " + inside + "?");
}

AdapterFolder AdapterFolder::open(const fs::path& dir) {
  AdapterFolder folder;
  folder.dir_ = dir;
  expect_adapter_folder(dir);
  folder.config_ = LoraConfig::from_json(read_json(dir / kConfig), (dir / kConfig).string());
  for (const char* name : kTensors) {
    if (!folder.files_.empty() || !fs::exists(dir / name)) continue;
    folder.files_.push_back(std::make_shared<const Weights>(Weights::open(dir / name)));
  }
  if (folder.files_.empty()) {
    throw checkpoint_error(fmt::format("{}: expected {} or {}, found neither", dir.string(), kTensors[0], kTensors[1]));
  }
  for (const char* name : kBeside) {
    if (fs::exists(dir / name)) folder.files_.push_back(std::make_shared<const Weights>(Weights::open(dir / name)));
  }
  return folder;
}

void AdapterFolder::verify() const {
  for (const auto& file : files_) verify_files(dir_, file->files());
}

std::vector<AdapterTensor> AdapterFolder::tensors() const {
  std::vector<AdapterTensor> all;
  for (const auto& file : files_) {
    for (const auto& spec : file->specs()) all.push_back({file->file_of(spec.name), spec});
  }
  return all;
}

std::string AdapterFolder::fingerprint() const {
  std::string all = config_.to_json().dump();
  for (const auto& tensor : tensors()) all += tensor.spec.name + tensor.spec.describe();
  return fmt::format("{:016x}", std::hash<std::string>()(all));
}

AdapterMatch AdapterFolder::match(const Model& model, const Dialect& naming) const {
  return match_adapter(model, naming, config_, tensors(), dir_.string());
}

const Weights& AdapterFolder::holder_of(const std::string& name) const {
  for (const auto& file : files_) {
    if (file->find(name) != nullptr) return *file;
  }
  throw checkpoint_error(fmt::format("{}: expected tensor {}, found none", dir_.string(), name));
}

void AdapterFolder::read_flat(const StoredPart& part, const Shape& shape, int64_t begin, const Tensor& out) const {
  const Weights& file = holder_of(part.name);
  for_each_piece(part.rows, shape, begin, begin + out.numel(), [&](int64_t there, int64_t here, int64_t count) {
    file.read_flat(part.name, there, out.narrow(0, here - begin, count));
  });
}

Tensor AdapterFolder::read(const std::string& name) const { return holder_of(name).read(name); }

fs::path AdapterFolder::file_of(const std::string& name) const { return dir_ / holder_of(name).file_of(name); }

AdapterValues::AdapterValues(const Model& model, const AdapterLayout& layout, uint64_t seed)
    : config_(layout.config), seed_(seed) {
  if (config_.changes_base()) {
    for (const auto& one : layout.modules) {
      const ParamSpec& spec = model.blocks[one.module.block]->params()[one.module.param];
      const bool alone = one.module.sources == 1 && !spec.tied && spec.shape.size() == 2 && !one.module.table;
      if (!alone) {
        throw checkpoint_error(
            fmt::format("{}: init_lora_weights {} of such a module is not built", one.module.name, config_.init),
            "adapt matrices of the model alone, or begin with --init_weights true");
      }
      changed_[spec.sources[one.module.first_source].key] = {one.rank, one.scale};
    }
  }
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      for (const auto& source : spec.sources) {
        const std::string& key = spec.tied ? spec.untied_key : source.key;
        const std::string module = base_of(key.ends_with(".weight") ? key.substr(0, key.size() - 7) : key);
        owners_.emplace(module, source);
        if (spec.kind == ParamKind::kTable) tables_.insert(module);
      }
      if (spec.tied) untied_[spec.untied_key] = spec.sources[0].key;
    }
  }
}

AdapterValues::AdapterValues(const Model& model, const AdapterLayout& layout,
                             std::shared_ptr<const AdapterFolder> folder, std::map<std::string, StoredPart> where)
    : AdapterValues(model, layout, 0) {
  folder_ = std::move(folder);
  where_ = std::move(where);
}

std::pair<const AdapterValues&, ParamSource> AdapterValues::holder_of(const ParamSource& source) const {
  const size_t at = std::min(source.key.size(), source.key.rfind('@'));
  const auto other = others_.find(source.key.substr(at));
  if (other == others_.end()) return {*this, source};
  return {other->second, {source.key.substr(0, at), source.shape, source.learns}};
}

std::optional<fs::path> AdapterValues::file_of(const ParamSource& source) const {
  const auto [holder, own] = holder_of(source);
  const auto place = holder.where_.find(own.key);
  return place == holder.where_.end() ? std::nullopt : std::make_optional(holder.folder_->file_of(place->second.name));
}

void AdapterValues::read_flat(const ParamSource& source, int64_t begin, const Tensor& out, const Weights& weights,
                              const KeyMap& keys) const {
  if (const auto [holder, own] = holder_of(source); &holder != this) {
    return holder.read_flat(own, begin, out, weights, keys);
  }
  if (const auto place = where_.find(source.key); place != where_.end()) {
    return folder_->read_flat(place->second, source.shape, begin, out);
  }
  if (is_adapters(source.key)) return fresh(source, begin, out, weights, keys);
  if (const auto one = changed_.find(source.key); one != changed_.end()) {
    out.copy_(residual(source, one->second, weights, keys).view({-1}).narrow(0, begin, out.numel()));
    return;
  }
  const auto twin = untied_.find(source.key);
  keys.read_flat(weights, twin == untied_.end() ? source : ParamSource{twin->second, source.shape}, begin, out);
}

Tensor AdapterValues::matrix_of(const ParamSource& source, const Weights& weights, const KeyMap& keys) const {
  const Tensor whole = empty({numel_of(source.shape)}, Dtype::kF32);
  const auto format = quantised_ ? quantised_->format_of(source.key) : std::nullopt;
  if (format && !weights.any_quantised()) {
    const Tensor bytes = empty({QuantLayout::of(*format, source.shape).bytes}, Dtype::kU8);
    const auto values = [&](int64_t first, std::span<float> x) {
      keys.read_flat(weights, source, first, view_memory(x.data(), {static_cast<int64_t>(x.size())}, Dtype::kF32));
    };
    quantise(*format, source.shape, values, 0, {bytes.data_ptr<uint8_t>(), static_cast<size_t>(bytes.numel())});
    unpack(*format, source.shape, bytes, whole);
  } else {
    keys.read_flat(weights, source, 0, whole);
  }
  return whole.view({source.shape[0], -1});
}

Tensor AdapterValues::residual(const ParamSource& source, const Began& began, const Weights& weights,
                               const KeyMap& keys) const {
  const Tensor flat = empty({numel_of(source.shape)}, Dtype::kF32);
  keys.read_flat(weights, source, 0, flat);
  const Tensor matrix = flat.view({source.shape[0], -1});
  const LowRankFactors taken = began_as(config_.init, matrix, began.rank, began.scale);
  return matrix.sub(taken.b.matmul(taken.a), began.scale);
}

LowRankFactors began_as(const std::string& init, const Tensor& matrix, int64_t rank, double scale) {
  if (init == "olora") {
    const auto [q, r] = at::linalg_qr(matrix);
    return {.a = r.narrow(0, 0, rank), .b = q.narrow(1, 0, rank)};
  }
  const auto [u, s, vh] = at::linalg_svd(matrix, /*full_matrices=*/false);
  const Tensor root = s.narrow(0, 0, rank).div(scale).sqrt();
  return {.a = root.unsqueeze(1).mul(vh.narrow(0, 0, rank)), .b = u.narrow(1, 0, rank).mul(root)};
}

void AdapterValues::fresh(const ParamSource& source, int64_t begin, const Tensor& out, const Weights& weights,
                          const KeyMap& keys) const {
  const std::string what = source.key.substr(base_of(source.key).size() + 1);
  const bool table = what.starts_with("lora_embedding");
  const bool drawn = (what == "lora_A.weight" && !table) || what == "lora_embedding_B" || config_.init == "false";
  if (what == "lora_magnitude_vector") {
    const ParamSource& matrix = owners_.at(base_of(source.key));
    const bool of_columns = tables_.contains(base_of(source.key));
    out.copy_(matrix_of(matrix, weights, keys).norm(2, of_columns ? 0 : 1).narrow(0, begin, out.numel()));
    return;
  }
  if (config_.changes_base()) {
    const ParamSource& matrix = owners_.at(base_of(source.key));
    const Began& began = changed_.at(matrix.key);
    const Tensor flat = empty({numel_of(matrix.shape)}, Dtype::kF32);
    keys.read_flat(weights, matrix, 0, flat);
    const LowRankFactors factors = began_as(config_.init, flat.view(matrix.shape), began.rank, began.scale);
    const Tensor& wanted = what == "lora_A.weight" ? factors.a : factors.b;
    out.copy_(wanted.contiguous().view({-1}).narrow(0, begin, out.numel()));
    return;
  }
  if (!drawn) {
    out.zero_();
    return;
  }
  const Tensor whole = empty({numel_of(source.shape)}, Dtype::kF32);
  const int64_t inputs = numel_of(source.shape) / source.shape[0];
  if (table) {
    fill_normal(whole, 1.0, seed_, source.key);
  } else if (config_.init == "gaussian") {
    fill_normal(whole, 1.0 / static_cast<double>(source.shape[0]), seed_, source.key);
  } else {
    // kaiming_uniform_ with a = sqrt(5): bounds of 1 / sqrt(inputs).
    fill_uniform(whole, 1.0 / std::sqrt(static_cast<double>(inputs)), seed_, source.key);
  }
  out.copy_(whole.narrow(0, begin, out.numel()));
}

namespace {

/// A file of an adapter whose tensors arrive one after another.
struct AdapterFile {
  std::map<std::string, TensorSpec> specs;
  std::unique_ptr<SafetensorsWriter> writer;

  void open(const fs::path& dir, const std::string& stem) {
    if (specs.empty()) return;
    std::vector<TensorSpec> list;
    for (const auto& [name, spec] : specs) list.push_back(spec);
    writer = std::make_unique<SafetensorsWriter>(
        dir, std::move(list), SafetensorsOptions{.max_shard_bytes = std::numeric_limits<int64_t>::max(), .stem = stem});
  }
};

class AdapterWriter {
 public:
  AdapterWriter(const AdapterFiles& files, const Plan& plan) : files_(files) {
    for (const auto& unit : plan.units) {
      if (!unit.trainable) continue;
      for (const auto& placed : unit.params) {
        for (const auto& source : placed.spec.sources) {
          if (!source.learns) continue;
          const bool beside = !is_adapters(source.key) && files.layout.whole.contains(unit.component);
          StoredPart part = files.layout.in_file(source);
          AdapterFile& file = beside ? whole_ : adapter_;
          file.specs[part.name] = {part.name, unit.dtype, part.whole_of(source.shape)};
          places_[source.key] = {&file, part};
        }
      }
    }
    for (const auto& one : files.carried) {
      adapter_.specs[one.written] = spec_of(files.from->read(one.name), one.written);
    }
  }

  void open(const fs::path& dir) {
    adapter_.open(dir, "adapter_model");
    whole_.open(dir, kWhole);
  }
  void write(const ParamSource& source, const Tensor& value) {
    const auto place = places_.find(source.key);
    if (place != places_.end()) write_part(*place->second.first->writer, place->second.second, value);
  }
  void finish() {
    for (const auto& one : files_.carried) adapter_.writer->write(one.written, files_.from->read(one.name));
    for (AdapterFile* file : {&adapter_, &whole_}) {
      if (file->writer) file->writer->finish();
    }
  }

 private:
  const AdapterFiles& files_;
  AdapterFile adapter_, whole_;
  std::map<std::string, std::pair<AdapterFile*, StoredPart>> places_;
};

std::string readme_of(const AdapterLayout& layout) {
  return fmt::format(
      "---\nbase_model: {}\nlibrary_name: peft\ntags:\n- base_model:adapter:{}\n- lora\n---\n\nA {} adapter, rank {}, "
      "of {} "
      "modules. Open it with peft (`PeftModel.from_pretrained`) or lockstep (`--adapters`).\n",
      layout.config.base_model, layout.config.base_model, layout.config.dora ? "DoRA" : "LoRA", layout.config.r,
      layout.modules.size());
}

}  // namespace

void write_adapter(const AdapterFiles& files, ParamStore& store, Communicator& comm, const fs::path& dir) {
  constexpr int kRoot = 0;
  std::exception_ptr error;
  const auto attempt = [&](const auto& work) {
    if (error || comm.rank() != kRoot) return;
    try {
      work();
    } catch (...) {
      error = std::current_exception();  // the other ranks still need this one in their gathers
    }
  };
  AdapterWriter writer(files, store.plan());
  attempt([&] { writer.open(dir); });
  store.visit_trained(comm, kRoot, [&](const ParamSource& source, const Tensor& value) {
    attempt([&] { writer.write(source, value); });
  });
  attempt([&] {
    writer.finish();
    write_json(dir / kConfig, files.layout.config.to_json());
    write_text(dir / "README.md", readme_of(files.layout));
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
