#include "lockstep/model/weight_files.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"  // found_for_folder
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTorchSingle = "pytorch_model.bin";
constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";

/// The files of a folder whose names end with one of `extensions`, in order.
std::vector<std::string> files_with(const fs::path& dir, std::initializer_list<const char*> extensions) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string extension = entry.path().extension().string();
    const bool found = std::any_of(extensions.begin(), extensions.end(), [&](const char* e) { return extension == e; });
    if (found) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Of a folder in which a trainer keeps the parts of each rank alone: what they are, and what makes a model of them.
std::optional<std::pair<std::string, std::string>> parts_of_ranks(const fs::path& dir) {
  constexpr const char* kBeside = "config.json and the tokenizer belong beside what comes out";
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with("global_step")) {
      return std::make_pair(name + "/ of DeepSpeed",
                            fmt::format("python {0}/zero_to_fp32.py {0} OUT gathers them; {1}", dir.string(), kBeside));
    }
    const bool in_folder = entry.is_directory() && name.starts_with("pytorch_model_fsdp_");
    if (in_folder || name.ends_with(".distcp")) {
      return std::make_pair(name + " of FSDP", fmt::format("accelerate merge-weights {} OUT gathers them; {}",
                                                           (in_folder ? entry.path() : dir).string(), kBeside));
    }
  }
  return std::nullopt;
}

UserError no_weights(const fs::path& dir) {
  if (!fs::is_directory(dir)) {
    return checkpoint_error(
        fmt::format("{}: expected a folder with {}, found {}", dir.string(), kSingle, found_for_folder(dir)),
        "models are read from local folders: name the one that holds the checkpoint, or download it first");
  }
  for (const char* adapter : {"adapter_model.safetensors", "adapter_model.bin"}) {
    if (!fs::exists(dir / adapter)) continue;
    return checkpoint_error(
        fmt::format("{}: expected {}, found {}: a LoRA adapter, not a model", dir.string(), kSingle, adapter),
        "give the folder of the base model");
  }
  if (const auto parts = parts_of_ranks(dir)) {
    return checkpoint_error(fmt::format("{}: expected {} or {}, found {}: the weights in parts, of each rank",
                                        dir.string(), kSingle, kIndex, parts->first),
                            parts->second);
  }
  const auto shards = files_with(dir, {".safetensors"}), pickles = files_with(dir, {".bin", ".pt", ".pth"});
  if (!shards.empty()) {
    return checkpoint_error(fmt::format("{}: expected {} or {}, found {} without an index", dir.string(), kSingle,
                                        kIndex, cut_text(join(shards, " "))),
                            "copy the index file too");
  }
  if (!pickles.empty()) {
    const bool are_shards = pickles.front().starts_with("pytorch_model-");
    return checkpoint_error(
        fmt::format("{}: expected {}, {} or an index of one of them, found {}{}", dir.string(), kSingle, kTorchSingle,
                    are_shards ? "" : "only ", cut_text(join(pickles, " "))) +
            (are_shards ? " without an index" : ""),
        are_shards ? "copy the index file too"
                   : "a model's folder in Hugging Face's layout has one of these names: convert the checkpoint to it");
  }
  return checkpoint_error(fmt::format("{}: expected {}, {} or an index of one of them, found neither", dir.string(),
                                      kSingle, kTorchSingle));
}

/// tensor -> file name, from the index.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json index = read_json(path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    throw checkpoint_error(fmt::format("{}: expected an object \"weight_map\" of tensor to file", path.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      throw checkpoint_error(fmt::format("{}: weight_map {}: expected the name of a file in this folder, found {}",
                                         path.string(), tensor, file.dump()));
    }
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

WeightFiles indexed_files(const fs::path& dir, const char* index) {
  WeightFiles found{.names = {}, .index = dir / index, .file_of = read_index(dir / index)};
  for (const auto& [tensor, file] : found.file_of) found.names.push_back(file);
  std::sort(found.names.begin(), found.names.end());
  found.names.erase(std::unique(found.names.begin(), found.names.end()), found.names.end());
  std::vector<std::string> absent;
  for (const auto& name : found.names) {
    std::error_code none;  // a name may be longer than any file's
    if (!fs::is_regular_file(dir / name, none)) absent.push_back(name);
  }
  if (absent.empty()) return found;
  std::string hint = "the download is not complete";
  if (std::string_view(index) == kIndex && (fs::exists(dir / kTorchSingle) || fs::exists(dir / kTorchIndex))) {
    hint += fmt::format("; without {} the pytorch_model files would be read", kIndex);
  }
  throw checkpoint_error(fmt::format("{}: {} of {} files are not there: {}", found.index.string(), absent.size(),
                                     found.names.size(), cut_text(join(absent, " "))),
                         hint);
}

}  // namespace

WeightFiles find_weight_files(const fs::path& dir) {
  struct Layout {
    const char *single, *index;
  };
  for (const auto& [single, index] : {Layout{kSingle, kIndex}, Layout{kTorchSingle, kTorchIndex}}) {
    if (fs::is_regular_file(dir / single)) return {.names = {single}, .index = {}, .file_of = {}};
    if (fs::is_regular_file(dir / index)) return indexed_files(dir, index);
  }
  throw no_weights(dir);
}

bool is_torch_file(const fs::path& path) { return path.extension() == ".bin"; }

bool reads_torch_files(const fs::path& dir) {
  return !fs::is_regular_file(dir / kSingle) && !fs::is_regular_file(dir / kIndex);
}

}  // namespace lockstep
