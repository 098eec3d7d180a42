// The sizes in which `lockstep init` makes fresh models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"
#include "lockstep/model/hf_config.h"

namespace lockstep {

struct TextSize {
  int64_t hidden, mlp, layers, heads, kv_heads, max_positions;
};
struct VisionSize {
  int64_t hidden, mlp, layers, heads, image_size, patch;
};

/// config.json of a decoder, without what only one family has.
Json fresh_text_config(const std::string& model_type, const std::string& architecture, const TextSize& size,
                       int64_t vocab);
Json fresh_vision_config(const VisionSize& size);
/// preprocessor_config.json and processor_config.json for such a tower.
Json fresh_image_processor(const VisionSize& size);
Json fresh_media_processor(const VisionSize& size);

/// ChatML, as Qwen2 has it: a turn ends with <|im_end|>.
std::string_view chatml_template();
/// Llama 3's headers: a turn ends with <|eot_id|>.
std::string_view llama3_template();
/// Mistral's: [INST] … [/INST] and the answer, which ends with the end-of-sequence token; a system message stands in front of
/// the first question.
std::string_view mistral_template();
/// What parts of a message are written as, by their type, within quotes of Jinja: {"image", "<|image_pad|>"}.
using MediaMarks = std::vector<std::pair<std::string, std::string>>;
/// ChatML with media where they stand. `greets`: with the default system message where a conversation has none.
std::string media_chatml_template(const MediaMarks& marks, bool greets = true);
/// So Qwen2-VL: <|vision_start|><|image_pad|><|vision_end|>.
std::string qwen2_vl_template();
/// So InternVL, a line each: <IMG_CONTEXT>, <video>.
std::string internvl_template();
/// USER: … ASSISTANT: …, images before the text, an answer ends with the end-of-sequence token.
std::string_view vicuna_template();

/// initializer_range of the text: the standard deviation of fresh matrices.
double text_spread(const HfConfig& config);

}  // namespace lockstep
