#include "lockstep/state/side_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr uintmax_t kHeldBytes = 16U << 20U;  // of a file: tokenizers are about as large
constexpr size_t kMostFiles = 10'000;
constexpr int kMostDepth = 8;

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

/// A folder with a model, an adapter or a run in it.
bool stands_alone(const fs::path& dir) {
  static constexpr std::array kSigns = {"config.json", "adapter_config.json", "trainer_state.json", "args.json"};
  return std::any_of(kSigns.begin(), kSigns.end(), [&](const char* name) { return fs::exists(dir / name); });
}

void add_folder(const fs::path& root, const fs::path& dir, int depth, SideFiles& files) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const fs::path& path = entry.path();
    const bool hidden = path.filename().string().starts_with(".");
    if (entry.is_directory() && !entry.is_symlink() && !hidden && depth < kMostDepth && !stands_alone(path)) {
      add_folder(root, path, depth + 1, files);
    }
    if (!entry.is_regular_file() || !is_side_file(path)) continue;
    const std::string name = path.lexically_relative(root).string();
    if (entry.file_size() > kHeldBytes) {
      files.push_back({name, MappedFile(path)});
    } else {
      files.push_back({name, read_text(path)});
    }
    if (files.size() <= kMostFiles) continue;
    throw checkpoint_error(
        fmt::format("{}: expected at most {} files beside the weights, found more", root.string(), kMostFiles),
        "they travel with every checkpoint: move what is not the model's to another folder");
  }
}

std::string_view text_of(const SideFile& file) {
  if (const auto* held = std::get_if<std::string>(&file.bytes)) return *held;
  const auto bytes = std::get<MappedFile>(file.bytes).bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

SideFiles read_side_files(const fs::path& dir) {
  SideFiles files;
  add_folder(dir, dir, 0, files);
  std::sort(files.begin(), files.end(), [](const SideFile& a, const SideFile& b) { return a.name < b.name; });
  return files;
}

void write_side_files(const SideFiles& files, Dtype dtype, const fs::path& dir) {
  for (const auto& file : files) {
    make_folders((dir / file.name).parent_path());
    if (file.name == "config.json") {
      write_text(dir / file.name, config_text(std::string(text_of(file)), dtype));
      continue;
    }
    write_text(dir / file.name, text_of(file));
    if (const auto* map = std::get_if<MappedFile>(&file.bytes)) map->forget(0, map->bytes().size());
  }
}

}  // namespace lockstep
