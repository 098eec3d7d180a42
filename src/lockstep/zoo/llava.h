// What the parts of the LLaVA family share: its sizes under both writers' keys, and where its tower stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/clip.h"
#include "lockstep/model/layers/text_config.h"
#include "lockstep/model/weights.h"

namespace lockstep::llava {

inline constexpr const char* kTower = "vision_tower.vision_model";
inline constexpr const char* kAuthorsTower = "model.vision_tower.vision_tower.vision_model";

inline constexpr const char* kProjector = "model.mm_projector.";  // how the authors' names of it begin
inline constexpr const char* kTowerName = "mm_vision_tower";      // key of config.json: a folder, or a repository
inline constexpr const char* kPlain = "plain";  // conversation of the first stage: a picture and its caption
inline constexpr const char* kTowerSizes = "vision_config";  // key of ours, where a folder holds its tower

struct Config {
  bool published = false;  // under its authors' keys, else transformers'
  TextConfig text;
  ClipConfig vision;
  std::vector<int64_t>
      states;  // of the tower that are taken: 0 is what enters the first layer, i what layer i - 1 gives
  bool drops_class_token = true;
  std::string projector_activation = "gelu";
  bool projector_bias = true, single_layer = false;  // of the projector
  std::string projector_name = "mm_projector.0";     // of its first layer in the authors' files, behind "model."
  bool mistral = false;                              // the text model

  int64_t tokens_of_picture() const { return vision.patches() + (drops_class_token ? 0 : 1); }
};

/// Throws UserError(kCheckpoint) naming the key; so where a tower is needed that stands nowhere.
Config read_config(const HfConfig& config);
/// Whether the keys are those of LLaVA's authors.
bool is_published(const HfConfig& config);
/// CLIPVisionConfig. Throws UserError(kCheckpoint) naming the key.
ClipConfig read_clip_config(const HfConfig& config);

/// Where the tower of a published folder is described.
struct Tower {
  std::filesystem::path dir;       // its own folder; empty: the model's folder has all of it
  HfConfig vision;                 // its sizes
  std::filesystem::path pictures;  // the folder whose preprocessor_config.json counts
};
/// The folder that a person named, else the one that mm_vision_tower names where it is there: absolute, or seen from the
/// model's folder; else what the model's folder says itself (`vision_config`: saved with a trained tower). Throws
/// UserError(kCheckpoint): there is none, or it is no CLIP tower.
Tower find_tower(const HfConfig& config);
std::vector<BorrowedTensors> borrowed_tensors(const HfConfig& config);

/// config.json as that of the LLaVA that its place describes: of a language model beside which a tower is named, or a published
/// one of which something else is said. nullopt: it is another model. Throws UserError(kCheckpoint) as find_tower() does.
std::optional<HfConfig> join(const HfConfig& config);
/// Whether its language model, tower and projector stand apart.
bool is_joined(const HfConfig& config);
/// Of the file that a person named; throws UserError(kUsage): it is not there.
std::vector<BorrowedTensors> projector_tensors(const HfConfig& config);
/// Of a joined model whose projector stands in no file; unless its folder has it.
std::vector<MadeTensor> made_projector(const HfConfig& config);
std::vector<std::pair<std::string, std::string>> saved_files(const HfConfig& config, bool whole);

/// Rows of a published folder. Throws UserError(kCheckpoint).
std::unique_ptr<Processor> load_published_processor(const ModelPlace& place);
/// What stands in a row of a published folder where a picture is: the authors have no such token, and no block reads it.
inline constexpr int32_t kFiller = 0;

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab);
double fresh_spread(const HfConfig& config, const std::string& key);

}  // namespace lockstep::llava
