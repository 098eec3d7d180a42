// MiniCPM-o 2.6: MiniCPM-V's slices and resampler, Whisper's encoder for sound, both merged into Qwen2. What speaks ("tts.") is
// carried. Source: openbmb/MiniCPM-o-2_6 modeling_minicpmo.py, configuration_minicpm.py.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/minicpm.h"
#include "lockstep/zoo/minicpm_sound.h"
#include "lockstep/zoo/read_whisper.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace {

/// Parts that a folder of this family may do without.
bool sees(const HfConfig& config) { return config.flag("init_vision", true); }
bool hears(const HfConfig& config) { return config.flag("init_audio", true); }

Model build(const HfConfig& config) {
  minicpm::refuse_other_models(config);
  const TextConfig text = minicpm::read_text(config);
  Model model;
  model.family = "minicpm_o_2_6";
  model.answers_from_embeddings = true;
  add_token_embedding(model, minicpm::kTextAt, text);
  if (sees(config)) {
    minicpm::add_vision(model, config);
    model.add<MergeMedia>("merge_media");
  }
  if (hears(config)) minicpm::add_sound(model, config);
  add_decoder(model, minicpm::kTextAt, text);
  model.carried.emplace_back("tts.");
  if (!sees(config)) model.carried.insert(model.carried.end(), {"vpm.", "resampler."});
  if (!hears(config)) model.carried.insert(model.carried.end(), {"apm.", "audio_projection_layer."});
  return model;
}

std::unique_ptr<Processor> load_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig config = HfConfig::load(place);
  ChatParts parts = load_chat_parts(place, chatml_template());
  minicpm::add_stop_tokens(parts);
  if (sees(config) || hears(config)) {
    const HfConfig file = picture_config(dir, {"preprocessor_config.json"}, "image_processor");
    const int64_t queries =
        sees(config) ? minicpm::read_resampler(config).queries : file.size("image_feature_size", 64, {.most = 65536});
    const minicpm::SliceSpelling words = minicpm::read_spelling(file, queries);
    if (sees(config)) {
      minicpm::add_picture_rules(parts, minicpm::read_slices(file, minicpm::read_vision(config)), words, file.where());
    }
    if (hears(config)) {
      const minicpm::SoundConfig sound = minicpm::read_sound(config);
      minicpm::add_sound_rules(parts, sound, read_whisper_mel(file, sound.tower), words.filled, file.where());
    }
  }
  return std::make_unique<ChatProcessor>(std::move(parts));
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  std::vector<Features> rows = rows_of_hf(inputs);
  minicpm::add_recorded_slices(rows, inputs);
  minicpm::add_recorded_clips(rows, config, inputs);
  for (auto& row : rows) {
    std::ranges::stable_sort(row.media, {}, [](const MediaBlock& block) { return block.places.front(); });
  }
  return rows;
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  Features row = sees(config) ? minicpm::typical_row(config, tokens)
                              : Features{.input_ids = std::vector<int32_t>(static_cast<size_t>(tokens), 0),
                                         .labels = std::vector<int32_t>(static_cast<size_t>(tokens), 0)};
  if (hears(config)) minicpm::add_typical_clip(row, config, count_places(row.media));
  return row;
}

std::string other_version(const HfConfig& config) {
  std::string version = minicpm::version_unless_2_6(config);
  if (!version.empty()) return version;
  const std::string text = config.text("model_type", "minicpmo");
  return text == "minicpmo" || text == "minicpm_o_2_6" ? "" : fmt::format("\"model_type\" \"{}\"", text);
}

}  // namespace

Family minicpm_o_2_6_family() {
  return {.name = "minicpm_o_2_6",
          .architectures = {"MiniCPMO", "minicpmo"},
          .build = build,
          .processor = load_processor,
          .rows_of_hf = rows_of,
          .fresh_files = minicpm::fresh_omni_files,
          .typical_row = typical_row,
          .variables = {"MAX_SLICE_NUMS", "VIDEO_MAX_SLICE_NUMS", "MAX_NUM_FRAMES", "MAX_NUM", "VIDEO_MAX_NUM"},
          .fresh_spread = minicpm::fresh_spread,
          .unlike = {.of = other_version, .expected = "\"version\" 2.6 and \"model_type\" minicpmo (MiniCPM-o 2.6)"}};
}

}  // namespace lockstep
