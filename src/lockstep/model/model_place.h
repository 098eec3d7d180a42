// Where a model stands: its folder, and the folder of a part that its writers keep elsewhere.
//
// Example:
//   const HfConfig config = HfConfig::load({"llava-v1.5-7b", "clip-vit-large-patch14-336"});
#pragma once

#include <filesystem>
#include <utility>

namespace lockstep {

struct ModelPlace {
  ModelPlace() = default;
  /// A path is the place of a model that stands in one folder.
  ModelPlace(std::filesystem::path dir, std::filesystem::path tower = {})  // NOLINT(google-explicit-constructor)
      : folder(std::move(dir)), vision_tower(std::move(tower)) {}
  /// What reads one folder alone is given the model's.
  operator const std::filesystem::path&() const { return folder; }  // NOLINT(google-explicit-constructor)

  std::filesystem::path folder;
  std::filesystem::path vision_tower;  // as a person named it; empty: where config.json says, if it says so
};

}  // namespace lockstep
