// What the parts of the InternVL family share: its sizes, whichever way config.json is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/dialect.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/intern_vision.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

struct InternvlConfig {
  TextConfig text;
  InternVisionConfig vision;
  int64_t merge = 2;        // patches of a token's edge
  int64_t used_layers = 0;  // of the tower: up to the state that is taken
  bool mask_token = false;  // stored beside the patches, and of use to nobody
  std::string projector_activation = "gelu";
  int32_t image_token = -1;  // -1: config.json does not say it, the tokenizer does
  bool published = false;    // written as the authors publish it (internvl_chat), not as transformers does
  std::vector<Dialect> dialects;

  int64_t tokens_of_tile() const { return (vision.edge() / merge) * (vision.edge() / merge); }
};

/// `internvl` of transformers, or `internvl_chat` (llm_config, force_image_size, select_layer …) with Qwen2, Llama or
/// InternLM2. Throws UserError(kCheckpoint) naming the key. Source: transformers 5.23 models/internvl; OpenGVLab/InternVL
/// configuration_internvl_chat.py, configuration_intern_vit.py.
InternvlConfig read_internvl_config(const HfConfig& config);

/// The token that tiles fill, of the tokenizer in the folder where config.json gives no id. Throws UserError(kCheckpoint).
int32_t internvl_image_token(const InternvlConfig& config, const ModelPlace& place);

/// Throws UserError(kCheckpoint).
std::unique_ptr<Processor> load_internvl_processor(const ModelPlace& place);

/// As transformers writes it. See Family::fresh_files.
std::vector<std::pair<std::string, Json>> fresh_internvl_files(const std::string& size, int64_t vocab);

inline constexpr const char* kInternvlContext = "<IMG_CONTEXT>";
inline constexpr const char* kInternvlStart = "<img>";
inline constexpr const char* kInternvlEnd = "</img>";
inline constexpr const char* kInternvlVideo = "<video>";

}  // namespace lockstep
