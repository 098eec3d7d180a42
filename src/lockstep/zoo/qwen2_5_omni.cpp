// Qwen2.5-Omni: a window-attention tower for pictures and films, Whisper's encoder in chunks for sound, both merged into Qwen2
// with positions of three axes. Behind it, where config.json says so, a talker (qwen2_5_omni_talker.cpp); what makes
// sound of its codes ("token2wav.") is carried. Source: transformers 5.23 models/qwen2_5_omni.
#include "lockstep/zoo/qwen2_5_omni.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_whisper.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/window_tower.h"

namespace lockstep {
namespace qwen2_5_omni {
namespace {

const TextPrefixes kTextAt{.body = "thinker.model", .head = "thinker.lm_head"};
const std::string kEyes = "thinker.visual", kEars = "thinker.audio_tower";

SoundConfig read_sound(const HfConfig& part) {
  SoundConfig sound;
  sound.tower = read_whisper_config(
      part, {.hidden = 1280, .mlp = 5120, .layers = 32, .heads = 20, .bins = 128, .learnt_positions = false});
  sound.chunk = 2 * part.size("n_window", 100, {.most = sound.tower.max_positions});  // a state for two frames
  sound.output = part.size("output_dim", 3584);
  if (sound.tower.hidden % 2 != 0 || sound.tower.hidden < 4)
    throw wrong_key(part, "d_model", "an even number from 4 (sines and cosines)");
  return sound;
}

/// Released files say _token_index, those of transformers 5 may say _token_id.
int32_t token_of(const HfConfig& part, const std::string& what, int64_t usual, int64_t vocab) {
  const SizeRange range{.least = 0, .most = vocab - 1};
  const std::string index = what + "_token_index", id = what + "_token_id";
  return static_cast<int32_t>(part.has(index) ? part.size(index, usual, range) : part.size(id, usual, range));
}

MediaTokens read_tokens(const HfConfig& part, int64_t vocab) {
  return {.image = token_of(part, "image", 151655, vocab),
          .video = token_of(part, "video", 151656, vocab),
          .audio = token_of(part, "audio", 151646, vocab),
          .audio_begin = token_of(part, "audio_start", 151647, vocab),
          .audio_end = token_of(part, "audio_end", 151648, vocab)};
}

void add_sound(Model& model, const SoundConfig& sound, int64_t text_hidden, const std::string& where) {
  if (sound.output != text_hidden) {
    throw checkpoint_error(fmt::format("{}: audio_config.output_dim: expected {} (hidden_size of the text), found {}",
                                       where, text_hidden, sound.output));
  }
  const WhisperConfig& tower = sound.tower;
  model.add<WhisperLayout>(
      kEars + ".layout",
      WhisperLayoutConfig{.max_positions = tower.max_positions, .pool = sound.pool, .chunk = sound.chunk});
  model.add<WhisperEmbeddings>(kEars, tower);
  for (int64_t i = 0; i < tower.layers; ++i) model.add<WhisperLayer>(fmt::format("{}.layers.{}", kEars, i), tower);
  model.add<PooledNorm>(kEars + ".ln_post", tower);
  model.add<AudioLinear>(kEars + ".proj",
                         AudioProjectorConfig{.audio_hidden = tower.hidden, .text_hidden = sound.output});
  model.add<MergeMedia>(
      "merge_audio",
      MergeConfig{
          .component = Component::kAudioProjector, .runs_on = Modality::kAudio, .features = "sound", .slot = "audio"});
  model.unused.push_back({kEars + ".audio_bos_eos_token.weight", {2, sound.output}});
}

Model build(const HfConfig& config) {
  const Thinker thinker = read_thinker(config);
  const std::string where = thinker_of(config).where();
  Model model;
  model.family = "qwen2_5_omni";
  add_token_embedding(model, kTextAt, thinker.text);
  add_window_tower(model, kEyes, thinker.vision, thinker.text.hidden, where);
  add_sound(model, thinker.sound, thinker.text.hidden, where);
  add_decoder(model, kTextAt, thinker.text);
  if (speaks(config)) add_talker(model, "talker", read_talker(config, thinker.text).decoder, thinker.text.hidden);
  model.carried = {"talker.", "token2wav."};
  model.dialects = {{"in memory",
                     {{"thinker.model.*", "thinker.model.language_model.*"},
                      {"thinker.visual.*", "thinker.model.visual.*"},
                      {"thinker.audio_tower.*", "thinker.model.audio_tower.*"}}},
                    {"the thinker alone", {{"thinker.*", "*"}}},
                    {"the thinker in memory",
                     {{"thinker.model.*", "model.language_model.*"},
                      {"thinker.visual.*", "model.visual.*"},
                      {"thinker.audio_tower.*", "model.audio_tower.*"},
                      {"thinker.*", "*"}}}};
  if (promises_speech(config)) {
    for (const auto& beginning : model.carried) {
      model.promised.push_back({.beginning = beginning,
                                .by = config.where() + ": enable_audio_output true",
                                .cure = "set enable_audio_output to false in config.json, or copy the files with these "
                                        "tensors from the released model, or set ENABLE_AUDIO_OUTPUT=0"});
    }
  }
  return model;
}

double fresh_spread(const HfConfig& config, const std::string&) { return text_spread(thinker_of(config)); }

}  // namespace

TextConfig read_decoder(const HfConfig& part, int64_t vocab, int64_t head_dim) {
  // What Qwen2_5OmniTextConfig and Qwen2_5OmniTalkerConfig assume.
  return read_mrope_text(part, {.vocab = vocab,
                                .hidden = 3584,
                                .mlp = 18944,
                                .layers = 28,
                                .heads = 28,
                                .kv_heads = 4,
                                .max_positions = 32768,
                                .rope_theta = 1e6,
                                .head_dim = head_dim,
                                .qkv_bias = true,
                                .sliding_window_flag = true,
                                .window = 32768});
}

Thinker read_thinker(const HfConfig& config) {
  const HfConfig part = thinker_of(config), text = part.at("text_config");
  Thinker thinker{.text = read_decoder(text, 152064),
                  .vision = read_window_vision(part.at("vision_config")),
                  .sound = read_sound(part.at("audio_config")),
                  .tokens = {}};
  thinker.text.tied = part.flag("tie_word_embeddings", thinker.text.tied);
  thinker.vision.qkv_apart = true;
  thinker.tokens = read_tokens(part, thinker.text.vocab);
  thinker.positions_per_second = part.size("position_id_per_seconds", 25, {.most = 10000});
  thinker.positions_of_chunk = thinker.positions_per_second * part.size("seconds_per_chunk", 2, {.most = 3600});
  return thinker;
}

}  // namespace qwen2_5_omni

Family qwen2_5_omni_family() {
  return {.name = "qwen2_5_omni",
          .architectures = {"Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni_thinker",
                            "Qwen2_5OmniThinkerForConditionalGeneration"},
          .build = qwen2_5_omni::build,
          .processor = qwen2_5_omni::load_processor,
          .rows_of_hf = qwen2_5_omni::rows_of,
          .fresh_files = qwen2_5_omni::fresh_files,
          .typical_row = qwen2_5_omni::typical_row,
          .variables = {"MIN_PIXELS", "MAX_PIXELS", "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS", "VIDEO_TOTAL_PIXELS",
                        "IMAGE_MIN_TOKEN_NUM", "IMAGE_MAX_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM", "VIDEO_MAX_TOKEN_NUM",
                        "FPS", "FPS_MIN_FRAMES", "FPS_MAX_FRAMES", "NFRAMES", "SAMPLING_RATE", "USE_AUDIO_IN_VIDEO",
                        "QWENVL_BBOX_FORMAT"},
          .fresh_spread = qwen2_5_omni::fresh_spread};
}

}  // namespace lockstep
