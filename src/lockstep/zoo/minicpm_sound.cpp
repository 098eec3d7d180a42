// Source: openbmb/MiniCPM-o-2_6 modeling_minicpmo.py get_audio_embedding, processing_minicpmo.py get_audio_placeholder.
#include "lockstep/zoo/minicpm_sound.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/audio.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/minicpm.h"
#include "lockstep/zoo/read_whisper.h"

namespace lockstep::minicpm {
namespace {

const std::string kTower = "apm", kProjector = "audio_projection_layer", kSlot = "audio";
const std::string kBegin = "<|audio_start|>", kEnd = "<|audio_end|>";
constexpr std::string_view kClip = "(<audio>./</audio>)";
constexpr int64_t kFramesOfASecond = 100, kStatesOfASecond = 50;

int64_t tokens_of(int64_t frames, int64_t pool) { return states_of(frames) / pool; }

MediaBlock clip_of(const LogMelMaker& maker, const SoundConfig& sound, const Audio& audio, const std::string& where) {
  LogMel mel = maker.make(audio.samples, where);
  if (mel.frames > sound.frames() || tokens_of(mel.frames, sound.pool) == 0) {
    throw data_error(fmt::format("{}: expected sound of {} to {} frames ({} a second), found {}", where,
                                 2 * sound.pool - 1, sound.frames(), kFramesOfASecond, mel.frames),
                     "cut it into clips that the audio tower reads, or leave the row out");
  }
  return {.modality = Modality::kAudio,
          .slot = kSlot,
          .shape = {mel.frames, mel.bins},
          .values = std::move(mel.values),
          .facts = {{kAudioFrames, {mel.frames, mel.frames}}}};
}

/// The tokens of a clip, a second of them between two marks.
std::vector<MediaRun> spelled_clip(int64_t tokens, int64_t of_a_span, int32_t token) {
  std::vector<MediaRun> runs;
  for (int64_t left = tokens; left > 0; left -= of_a_span) {
    runs.push_back({.text = kBegin});
    runs.push_back({.token = token, .count = std::min(left, of_a_span), .block = 0});
    runs.push_back({.text = kEnd});
  }
  return runs;
}

/// Of a recorded clip [bins, W] its first `width` frames, a row each.
MediaBlock recorded_clip(const Tensor& mel, int64_t frames, int64_t width) {
  MediaBlock block = block_of(mel.narrow(1, 0, width).t().contiguous(), 0, width);
  block.modality = Modality::kAudio;
  block.slot = kSlot;
  block.facts[kAudioFrames] = {frames, width};
  return block;
}

}  // namespace

SoundConfig read_sound(const HfConfig& config) {
  const HfConfig part = config.at("audio_config");
  SoundConfig sound;
  WhisperConfig& tower = sound.tower;
  tower = read_whisper_config(part, {.hidden = 384, .mlp = 1536, .layers = 4, .heads = 6});
  if (tower.mlp / 4 != tower.hidden) {
    throw wrong_key(part, "encoder_ffn_dim",
                    fmt::format("four times d_model {}, as the audio projector takes a quarter of it", tower.hidden));
  }
  const double seconds = config.number("audio_chunk_length", 1.0);
  if (!(seconds <= static_cast<double>(kMaxWidth))) throw wrong_key(config, "audio_chunk_length", "seconds, or -1");
  tower.stretch = seconds > 0 ? static_cast<int64_t>(seconds * static_cast<double>(kStatesOfASecond)) : 0;
  if (seconds > 0 && tower.stretch == 0)
    throw wrong_key(config, "audio_chunk_length", "at least 0.02 (seconds), or -1");
  sound.pool = config.size("audio_pool_step", 2, {.most = tower.max_positions});
  sound.spans = config.flag("chunk_input", true);
  return sound;
}

void add_sound(Model& model, const HfConfig& config) {
  const SoundConfig sound = read_sound(config);
  const WhisperConfig& tower = sound.tower;
  model.add<WhisperLayout>(kTower + ".layout",
                           WhisperLayoutConfig{.max_positions = tower.max_positions, .pool = sound.pool});
  model.add<WhisperEmbeddings>(kTower, tower);
  for (int64_t i = 0; i < tower.layers; ++i) model.add<WhisperLayer>(fmt::format("{}.layers.{}", kTower, i), tower);
  model.add<WhisperNorm>(kTower + ".layer_norm", tower);
  model.add<AudioProjector>(
      kProjector, AudioProjectorConfig{.audio_hidden = tower.hidden, .text_hidden = read_text(config).hidden});
  model.add<MergeMedia>(
      "merge_audio",
      MergeConfig{
          .component = Component::kAudioProjector, .runs_on = Modality::kAudio, .features = "sound", .slot = kSlot});
}

void add_sound_rules(ChatParts& parts, const SoundConfig& sound, const LogMelConfig& mel, const std::string& filled,
                     const std::string& where) {
  const int32_t token = own_token(parts.tokenizer, filled, where);
  for (const auto& mark : {kBegin, kEnd}) {
    (void)own_token(parts.tokenizer, mark, where);
    parts.media.reserved.push_back(mark);  // the released code finds clips by them
  }
  const auto maker = std::make_shared<const LogMelMaker>(mel);
  const int64_t longest = std::min(mel.padded_samples, sound.frames() * mel.hop);
  const double seconds = static_cast<double>(longest) / static_cast<double>(mel.rate);
  const int64_t of_a_span = sound.spans ? std::max<int64_t>(1, tokens_of(kFramesOfASecond, sound.pool)) : longest;
  parts.media.kinds[Modality::kAudio] = {
      .placeholder = std::string(kClip),
      .prepare = [maker, sound](
                     const LoadedMedium& medium, const MediaOptions&,
                     const std::string& row) { return std::vector{clip_of(*maker, sound, medium.sound, row)}; },
      .spell =
          [token, of_a_span, pool = sound.pool](const std::vector<MediaBlock>& blocks, int64_t) {
            return spelled_clip(tokens_of(blocks.front().facts.at(kAudioFrames).front(), pool), of_a_span, token);
          },
      .ends_line = true,
      .sound = {.rate = mel.rate,
                .max_seconds = seconds,
                .why = fmt::format("the audio tower reads {:g} s at once", seconds)}};
}

void add_recorded_clips(std::vector<Features>& rows, const HfConfig& config, const HfInputs& inputs) {
  if (!inputs.contains("audio_features")) return;
  const Tensor &mel_AFW = inputs.at("audio_features"), &lengths_A = inputs.at("audio_feature_lens"),
               &bounds_S3 = inputs.at("audio_bounds");
  const bool alone = inputs.contains("audio_alone");
  const int64_t pool = read_sound(config).pool, width = inputs.at("input_ids").size(1);
  const bool left = layout_of(inputs) == RowLayout::kLeftPadded;
  int64_t span = 0;
  for (int64_t i = 0; i < mel_AFW.size(0); ++i) {
    const auto frames = lengths_A[i].item<int64_t>();
    MediaBlock block = recorded_clip(mel_AFW[i], frames, alone ? frames : mel_AFW.size(2));
    const auto wanted = static_cast<size_t>(tokens_of(frames, pool));
    Features* row = nullptr;
    for (; block.places.size() < wanted && span < bounds_S3.size(0); ++span) {
      const auto number = [&](int64_t column) { return bounds_S3[span][column].item<int64_t>(); };
      row = &rows.at(static_cast<size_t>(number(0)));
      const int64_t padding = left ? width - static_cast<int64_t>(row->input_ids.size()) : 0;
      for (int64_t at = number(1); at < number(2); ++at) block.places.push_back(static_cast<int32_t>(at - padding));
    }
    check(row != nullptr && block.places.size() == wanted, "recorded inputs: spans for the tokens of every clip");
    row->media.push_back(std::move(block));
  }
}

void add_typical_clip(Features& row, const HfConfig& config, int64_t taken) {
  constexpr int64_t kSeconds = 10;
  const SoundConfig sound = read_sound(config);
  const auto room = static_cast<int64_t>(row.input_ids.size()) - 1 - taken;
  const int64_t frames =
      std::min({kSeconds * kFramesOfASecond, sound.frames(), room > 0 ? 2 * sound.pool * room : int64_t{0}});
  const int64_t tokens = frames > 0 ? tokens_of(frames, sound.pool) : 0;
  if (tokens == 0) return;
  MediaBlock clip{.modality = Modality::kAudio,
                  .slot = kSlot,
                  .shape = {frames, sound.tower.bins},
                  .facts = {{kAudioFrames, {frames, frames}}}};
  clip.places.resize(static_cast<size_t>(tokens));
  std::iota(clip.places.begin(), clip.places.end(), static_cast<int32_t>(taken));
  row.media.push_back(std::move(clip));
  std::fill_n(row.labels.begin() + taken, tokens, -100);
}

}  // namespace lockstep::minicpm
