// What the files of the family qwen2_5_vl share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/zoo/hf_inputs.h"

namespace lockstep::qwen2_5_vl {

/// Where pictures and videos stand. Throws UserError(kCheckpoint) for one outside the vocabulary: no prompt holds it.
struct MediaTokens {
  int32_t image, video;
};
MediaTokens read_media_tokens(const HfConfig& config);

std::unique_ptr<Processor> load_processor(const ModelPlace& place);
std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs);
/// With a picture of 448 x 448 pixels: 1024 patches of 14 x 14.
Features typical_row(const HfConfig& config, int64_t tokens);
std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab);

}  // namespace lockstep::qwen2_5_vl
