// What the parts of the OmniLMM family share: its sizes, the words around a picture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/eva_vision.h"
#include "lockstep/model/layers/resampler.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep::omnilmm {

inline constexpr const char* kPatch = "<im_patch>";  // num_query times, filled by a picture
inline constexpr const char* kStart = "<im_start>";
inline constexpr const char* kEnd = "<im_end>";
/// The name of the queries' places in the files: a table that never learns and is computed from num_query.
inline constexpr const char* kStoredPlaces = "model.resampler.pos_embed";

struct Config {
  TextConfig text;
  EvaVisionConfig vision;
  ResamplerConfig resampler;
  std::string stored_as;  // dtype of the files, as config.json says it
};

/// config.json says nothing of the tower but its name in timm, whose sizes are these; `vision_config` (hidden_size,
/// intermediate_size, num_hidden_layers with the one that is dropped, num_attention_heads, patch_size, image_size of the
/// table of positions) is our own, for models of other sizes. Throws UserError(kCheckpoint) naming the key.
Config read_config(const HfConfig& config);

/// Zephyr's: a line with the role, the words, the end-of-sequence token.
std::string_view chat_template();
/// Throws UserError(kCheckpoint); so where the files hold places of queries other than those computed.
std::unique_ptr<Processor> load_processor(const ModelPlace& place);
std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab);

}  // namespace lockstep::omnilmm
