// What speaks of Qwen2.5-Omni: talker_config. Source: transformers 5.23 Qwen2_5OmniTalkerForConditionalGeneration.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/zoo/qwen2_5_omni.h"

namespace lockstep::qwen2_5_omni {
namespace {

bool is_thinker(const HfConfig& config) { return config.text("model_type", "") == "qwen2_5_omni_thinker"; }

}  // namespace

HfConfig thinker_of(const HfConfig& config) { return is_thinker(config) ? config : config.at("thinker_config"); }

Talker read_talker(const HfConfig& config, const TextConfig& text) {
  const HfConfig part = config.at("talker_config");
  Talker talker{.decoder = read_decoder(part, 8448, 128), .rules = {}};
  talker.decoder.tied = false;  // there is no such key
  const int64_t embedding = part.size("embedding_size", 3584);
  if (embedding != text.hidden) {
    throw checkpoint_error(fmt::format("{}: embedding_size: expected {} (hidden_size of the thinker's text), found {}",
                                       part.where(), text.hidden, embedding));
  }
  const auto id = [&](const char* key, int64_t usual, int64_t vocab) {
    return static_cast<int32_t>(part.size(key, usual, {.least = 0, .most = vocab - 1}));
  };
  const int64_t codes = talker.decoder.vocab;
  talker.rules = {.speakers = {},
                  .text_end = id("tts_text_end_token_id", 151861, text.vocab),
                  .text_pad = id("tts_text_pad_token_id", 151859, text.vocab),
                  .code_mask = id("tts_codec_mask_token_id", 8296, codes),
                  .code_pad = id("tts_codec_pad_token_id", 8292, codes),
                  .code_start = id("tts_codec_start_token_id", 8293, codes),
                  .code_end = id("tts_codec_end_token_id", 8294, codes),
                  .codes = codes,
                  .max_positions = talker.decoder.max_positions};
  return talker;
}

bool promises_speech(const HfConfig& config) {
  return config.flag("enable_audio_output", /*otherwise=*/!is_thinker(config));
}

bool speaks(const HfConfig& config) { return !is_thinker(config) && promises_speech(config); }

}  // namespace lockstep::qwen2_5_omni
