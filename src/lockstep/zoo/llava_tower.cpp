// The tower of a published LLaVA: in another folder, which the model's config names; in its own once it was trained.
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"  // found_for_folder
#include "lockstep/base/text_format.h"
#include "lockstep/zoo/llava.h"

namespace lockstep::llava {
namespace fs = std::filesystem;
namespace {

bool is_folder(const fs::path& path) {
  std::error_code failure;  // of names that no file can have
  return path.native().find('\0') == std::string::npos && fs::is_directory(path, failure);
}

/// What mm_vision_tower names, where it is there.
fs::path named_folder(const HfConfig& config) {
  const std::string name = config.text(kTowerName, "");
  if (name.empty()) return {};
  const fs::path path = config.folder() / name;  // an absolute one stays as it is
  return is_folder(path) ? path : fs::path();
}

/// Not seen from anywhere: messages and saved folders name it too.
fs::path tower_folder(const HfConfig& config) {
  const fs::path& asked = config.place().vision_tower;
  if (!asked.empty() && !is_folder(asked)) {
    throw checkpoint_error(
        fmt::format("--vision_tower {}: expected the folder of a CLIP tower, found {}", cut_text(asked.string()),
                    found_for_folder(asked)),
        "models are read from local folders: download the tower's repository, and name where it stands");
  }
  const fs::path found = asked.empty() ? named_folder(config) : asked;
  return found.empty() ? found : fs::absolute(found).lexically_normal();
}

/// A tower's config.json is CLIP's vision part alone, or that of a whole CLIP, which has it inside.
HfConfig vision_of(const fs::path& dir) {
  if (std::error_code failure; !fs::exists(dir / "config.json", failure)) {
    throw checkpoint_error(
        fmt::format("{}: expected the config.json of a CLIP tower, found none", (dir / "config.json").string()),
        "--vision_tower, or mm_vision_tower of the model's config.json, must be the folder of a tower");
  }
  HfConfig config = HfConfig::load(dir);
  const std::string type = config.text("model_type", "");
  if (type == "clip_vision_model") return config;
  if (type == "clip" && config.has(kTowerSizes)) return config.at(kTowerSizes);
  throw checkpoint_error(
      fmt::format("{}: model_type: expected clip_vision_model, or clip with a vision_config, found \"{}\"",
                  config.where(), cut_text(type)),
      "this folder is no CLIP tower; others are not built");
}

}  // namespace

Tower find_tower(const HfConfig& config) {
  const fs::path dir = tower_folder(config);
  if (config.has(kTowerSizes)) return {.dir = dir, .vision = config.at(kTowerSizes), .pictures = config.folder()};
  if (!dir.empty()) return {.dir = dir, .vision = vision_of(dir), .pictures = dir};
  const std::string name = config.has(kTowerName) ? cut_text(config.json().at(kTowerName).dump()) : "";
  throw checkpoint_error(
      fmt::format("{}: {}: expected the folder of the model's vision tower, absolute or seen from {}, found {}",
                  config.where(), kTowerName, config.folder().string(),
                  name.empty() ? "no such key" : name + ", which is not there"),
      fmt::format("download {}, and name its folder: --vision_tower DIR",
                  name.empty() ? "the CLIP tower that the model was trained with" : name));
}

std::vector<BorrowedTensors> borrowed_tensors(const HfConfig& config) {
  if (!is_published(config)) return {};
  auto borrowed = projector_tensors(config);
  const Tower tower = find_tower(config);
  if (tower.dir.empty()) return borrowed;
  // A tower saved alone may be without the name of the part that it is of a whole CLIP.
  borrowed.push_back({.dir = tower.dir, .from = {"vision_model.", ""}, .to = std::string(kAuthorsTower) + "."});
  return borrowed;
}

std::vector<std::pair<std::string, std::string>> saved_files(const HfConfig& config, bool whole) {
  if (!is_published(config)) return {};
  const Tower tower = find_tower(config);
  Json saved = config.json();
  if (!named_folder(config).empty() && !tower.dir.empty()) saved[kTowerName] = tower.dir.string();  // it moves
  std::vector<std::pair<std::string, std::string>> files;
  if (whole) {
    saved[kTowerSizes] = tower.vision.json();
    const fs::path pictures = tower.pictures / "preprocessor_config.json";
    if (fs::exists(pictures)) files.emplace_back("preprocessor_config.json", read_text(pictures));
  }
  if (config.differs_from_file() || saved != config.json()) files.emplace_back("config.json", saved.dump(2) + "\n");
  return files;
}

}  // namespace lockstep::llava
