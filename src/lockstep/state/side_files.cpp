#include "lockstep/state/side_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr uintmax_t kHeldBytes = 16U << 20U;       // of a file: tokenizers are about as large
constexpr uintmax_t kMostHeld = 256U << 20U;       // of all of them
constexpr int64_t kUsualBytes = int64_t{1} << 30;  // beside the weights: voices and the like are some hundred MiB
constexpr size_t kMostFiles = 10'000;
constexpr int kMostDepth = 8;

constexpr const char* kNotTheModels =
    "they travel with every checkpoint and export: move what is not the model's to another folder";

/// What trainers keep beside the weights to go on from: DeepSpeed, FSDP, accelerate, transformers.
bool is_trainers_file(const std::string& name) {
  static constexpr std::array kBegins = {"rng_state", "random_states_"};
  static constexpr std::array kEnds = {"_optim_states.pt", "_model_states.pt", ".distcp"};
  static constexpr std::array kNames = {"optimizer.pt", "scheduler.pt", "scaler.pt", "latest", "zero_to_fp32.py"};
  return std::ranges::any_of(kBegins, [&](const char* begin) { return name.starts_with(begin); }) ||
         std::ranges::any_of(kEnds, [&](const char* end) { return name.ends_with(end); }) ||
         std::ranges::find(kNames, name) != kNames.end();
}
bool is_trainers_folder(const std::string& name) {
  static constexpr std::array kBegins = {"global_step", "pytorch_model_fsdp_", "optimizer_"};
  return std::ranges::any_of(kBegins, [&](const char* begin) { return name.starts_with(begin); });
}

/// Weights, and what a run writes itself: everything else in a model's folder travels with it. The config of an adapter that
/// lies beside them does not: a checkpoint with it would count as one.
bool is_side_file(const fs::path& path) {
  static constexpr std::array kExtensions = {".safetensors", ".bin",     ".pth",  ".gguf",
                                             ".h5",          ".msgpack", ".onnx", ".ckpt"};
  static constexpr std::array kNames = {"args.json",     "trainer_state.json", "lockstep_manifest.json", "plan.json",
                                        "logging.jsonl", "report.html",        "adapter_config.json"};
  const std::string name = path.filename().string(), extension = path.extension().string();
  if (name.starts_with(".") || name.ends_with(".index.json") || is_trainers_file(name)) return false;
  return std::ranges::find(kExtensions, extension) == kExtensions.end() &&
         std::ranges::find(kNames, name) == kNames.end();
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

/// A folder's own files first: they are the model's, whatever lies in folders below.
void add_folder(const fs::path& root, const fs::path& dir, int depth, std::vector<fs::path>& found) {
  std::vector<fs::path> below;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    const bool left_out = name.starts_with(".") || is_trainers_folder(name);
    if (entry.is_directory() && !entry.is_symlink() && !left_out && depth < kMostDepth && !stands_alone(path)) {
      below.push_back(path);
    }
    if (!entry.is_regular_file() || !is_side_file(path)) continue;
    found.push_back(path);
    if (found.size() <= kMostFiles) continue;
    throw checkpoint_error(
        fmt::format("{}: expected at most {} files beside the weights, found more", root.string(), kMostFiles),
        kNotTheModels);
  }
  for (const auto& path : below) add_folder(root, path, depth + 1, found);
}

std::string_view text_of(const SideFile& file) {
  if (const auto* held = std::get_if<std::string>(&file.bytes)) return *held;
  const auto bytes = std::get<MappedFile>(file.bytes).bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

SideFiles read_side_files(const fs::path& dir) {
  std::vector<fs::path> found;
  add_folder(dir, dir, 0, found);
  SideFiles files;
  uintmax_t held = 0;
  for (const auto& path : found) {
    const std::string name = path.lexically_relative(dir).string();
    const uintmax_t size = fs::file_size(path);
    const bool holds = size <= kHeldBytes && held + size <= kMostHeld;
    if (holds) held += size;
    files.push_back(holds ? SideFile{name, read_text(path)} : SideFile{name, MappedFile(path)});
  }
  std::sort(files.begin(), files.end(), [](const SideFile& a, const SideFile& b) { return a.name < b.name; });
  return files;
}

int64_t side_file_bytes(const SideFiles& files) {
  int64_t bytes = 0;
  for (const auto& file : files) bytes += static_cast<int64_t>(text_of(file).size());
  return bytes;
}

std::string large_side_files(const SideFiles& files) {
  const int64_t bytes = side_file_bytes(files);
  if (bytes <= kUsualBytes) return "";
  std::map<std::string, int64_t> by_place;
  for (const auto& file : files) {
    const size_t end = file.name.find('/');
    by_place[file.name.substr(0, end == std::string::npos ? end : end + 1)] +=
        static_cast<int64_t>(text_of(file).size());
  }
  const auto most = std::ranges::max_element(by_place, {}, [](const auto& place) { return place.second; });
  return fmt::format("{} in {} files beside the weights, {} of them {}: {}", format_bytes(bytes), files.size(),
                     format_bytes(most->second), most->first, kNotTheModels);
}

void write_side_files(const SideFiles& files, std::optional<Dtype> dtype, const fs::path& dir) {
  for (const auto& file : files) {
    make_folders((dir / file.name).parent_path());
    if (file.name == "config.json" && dtype) {
      write_text(dir / file.name, config_text(std::string(text_of(file)), *dtype));
      continue;
    }
    write_text(dir / file.name, text_of(file));
    if (const auto* map = std::get_if<MappedFile>(&file.bytes)) map->forget(0, map->bytes().size());
  }
}

}  // namespace lockstep
