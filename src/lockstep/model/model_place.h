// Where a model stands: its folder, and the folder of a part that its writers keep elsewhere.
//
// Example:
//   const HfConfig config = HfConfig::load({"llava-v1.5-7b", "clip-vit-large-patch14-336"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What joins a language model and a tower that stand in folders of their own to one model, in the words of LLaVA's scripts.
struct Joint {
  std::filesystem::path projector;  // a file with its tensors alone; empty: they stand in the folder, or are made anew
  std::string projector_type, select_feature, aspect_ratio;  // empty: not said
  std::optional<int64_t> select_layer;
  std::string conversation;  // how rows are spelled, of the ways that are not the folder's own
  uint64_t seed = 42;        // of a projector that is made anew

  /// The flags by which a person says any of it.
  std::vector<std::string> said() const {
    std::vector<std::string> flags;
    if (!projector.empty()) flags.emplace_back("--pretrain_mm_mlp_adapter");
    if (!projector_type.empty()) flags.emplace_back("--mm_projector_type");
    if (select_layer) flags.emplace_back("--mm_vision_select_layer");
    if (!select_feature.empty()) flags.emplace_back("--mm_vision_select_feature");
    if (!aspect_ratio.empty()) flags.emplace_back("--image_aspect_ratio");
    if (!conversation.empty()) flags.emplace_back("--conversation");
    return flags;
  }
};

struct ModelPlace {
  ModelPlace() = default;
  /// A path is the place of a model that stands in one folder.
  ModelPlace(std::filesystem::path dir, std::filesystem::path tower = {},  // NOLINT(google-explicit-constructor)
             Joint how = {}, std::vector<std::string> tokens = {})
      : folder(std::move(dir)), vision_tower(std::move(tower)), joint(std::move(how)), new_tokens(std::move(tokens)) {}
  /// What reads one folder alone is given the model's.
  operator const std::filesystem::path&() const { return folder; }  // NOLINT(google-explicit-constructor)

  std::filesystem::path folder;
  std::filesystem::path vision_tower;  // as a person named it; empty: where config.json says, if it says so
  Joint joint;
  std::vector<std::string> new_tokens;  // special tokens that its tokenizer has not, or has already
  int64_t token_rows = 0;               // of its tables of words, as an adapter over it has them; 0: nobody says
};

}  // namespace lockstep
