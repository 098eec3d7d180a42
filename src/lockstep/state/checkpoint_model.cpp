#include "lockstep/state/checkpoint_model.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/model/safetensors_writer.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Weights, and what a run writes itself: everything else in a model's folder travels with it.
bool is_side_file(const fs::path& path) {
  static constexpr std::array kExtensions = {".safetensors", ".bin",     ".pth",  ".gguf",
                                             ".h5",          ".msgpack", ".onnx", ".ckpt"};
  static constexpr std::array kNames = {"args.json",    "trainer_state.json", "lockstep_manifest.json", "optimizer.pt",
                                        "scheduler.pt", "plan.json",          "logging.jsonl",          "report.html"};
  const std::string name = path.filename().string(), extension = path.extension().string();
  if (name.starts_with(".") || name.ends_with(".index.json") || name.starts_with("rng_state")) return false;
  return std::find(kExtensions.begin(), kExtensions.end(), extension) == kExtensions.end() &&
         std::find(kNames.begin(), kNames.end(), name) == kNames.end();
}

void set_dtype(Json& config, const std::string& name) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.contains(key) && config[key].is_string()) config[key] = name;
  }
  for (auto& [key, value] : config.items()) {
    if (value.is_object() && key.ends_with("_config")) set_dtype(value, name);
  }
}

/// A config without a dtype says float32 by convention: one that is something else must say so.
std::string config_text(const std::string& text, Dtype dtype) {
  Json config = parse_json(text, "config.json");
  set_dtype(config, torch_dtype_name(dtype));
  if (!config.contains("torch_dtype") && !config.contains("dtype")) config["torch_dtype"] = torch_dtype_name(dtype);
  return config.dump(2) + "\n";
}

/// On-disk names of one tensor of the store: its own, and a tied head's where the source stores one.
using Names = std::map<std::string, std::vector<std::string>>;

std::optional<std::string> tied_owner(const Model& model) {
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied) return spec.sources.at(0).key;
    }
  }
  return std::nullopt;
}

Names names_of(const ModelSource& source, const Plan& plan) {
  Names names;
  std::map<std::string, std::string> owned;  // on disk -> canonical
  for (const auto& unit : plan.units) {
    for (const auto& placed : unit.params) {
      for (const auto& part : placed.spec.sources) owned[source.keys.on_disk(part.key)] = part.key;
    }
  }
  const auto tied = tied_owner(source.model);
  for (const auto& spec : source.weights.specs()) {
    const auto found = owned.find(spec.name);
    if (found != owned.end()) names[found->second].push_back(spec.name);
    if (found == owned.end() && tied && spec.name.ends_with("lm_head.weight")) names[*tied].push_back(spec.name);
  }
  return names;
}

/// Everything that rank 0 does; the first error is kept, because the other ranks still need it in their gathers.
class WeightsFile {
 public:
  WeightsFile(const ModelSource& source, const Plan& plan) : source_(source), names_(names_of(source, plan)) {}

  void open(Dtype dtype, int64_t max_shard_bytes, const fs::path& dir) {
    attempt([&] {
      std::vector<TensorSpec> specs = source_.weights.specs();
      for (auto& spec : specs) {
        if (is_of_model(spec.name)) {
          spec.dtype = dtype;
        } else {
          carried_.push_back(spec.name);
        }
      }
      writer_ = std::make_unique<SafetensorsWriter>(dir, std::move(specs),
                                                    SafetensorsOptions{.max_shard_bytes = max_shard_bytes});
    });
  }
  void write(const ParamSource& part, const Tensor& value) {
    attempt([&] {
      for (const auto& name : names_.at(part.key)) writer_->write(name, value);
    });
  }
  void finish() {
    attempt([&] {
      for (const auto& name : carried_) writer_->write(name, source_.weights.read(name));
      writer_->finish();
    });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void attempt(const std::function<void()>& work) {
    if (error_) return;
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  bool is_of_model(const std::string& name) const {
    return std::any_of(names_.begin(), names_.end(), [&](const auto& entry) {
      return std::find(entry.second.begin(), entry.second.end(), name) != entry.second.end();
    });
  }

  const ModelSource& source_;
  Names names_;
  std::vector<std::string> carried_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::exception_ptr error_;
};

}  // namespace

SideFiles read_side_files(const fs::path& dir) {
  SideFiles files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const fs::path& path = entry.path();
    if (entry.is_regular_file() && is_side_file(path)) files.emplace_back(path.filename().string(), read_text(path));
    if (!entry.is_directory() || path.filename() != "additional_chat_templates") continue;
    for (const auto& chat : fs::directory_iterator(path)) {
      if (chat.is_regular_file())
        files.emplace_back(chat.path().lexically_relative(dir).string(), read_text(chat.path()));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void write_side_files(const SideFiles& files, Dtype dtype, const fs::path& dir) {
  for (const auto& [name, bytes] : files) {
    make_folders((dir / name).parent_path());
    write_text(dir / name, name == "config.json" ? config_text(bytes, dtype) : bytes);
  }
}

void write_weights(const ModelSource& source, ParamStore& store, Communicator& comm, Dtype dtype,
                   int64_t max_shard_bytes, const fs::path& dir) {
  constexpr int kRoot = 0;
  WeightsFile file(source, store.plan());
  const bool writes = comm.rank() == kRoot;
  if (writes) file.open(dtype, max_shard_bytes, dir);
  store.visit_full(comm, kRoot, dtype, [&](const ParamSource& part, const Tensor& value) { file.write(part, value); });
  if (writes) file.finish();
}

}  // namespace lockstep
