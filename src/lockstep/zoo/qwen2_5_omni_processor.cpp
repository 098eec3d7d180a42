// Rows for Qwen2.5-Omni: pictures, films and clips, and films woven with their sound.
#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/audio.h"
#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/zoo/box_text.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/patch_pictures.h"
#include "lockstep/zoo/qwen2_5_omni.h"
#include "lockstep/zoo/read_whisper.h"
#include "lockstep/zoo/speakers.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep::qwen2_5_omni {
namespace {

/// What transformers takes for films, whatever the folder says of pictures. Source: transformers 5.23
/// processing_qwen2_5_omni.py Qwen2_5OmniProcessor.videos_kwargs.
constexpr int64_t kLeastFilmPixels = 128 * 28 * 28, kMostFilmPixels = 768 * 28 * 28;

PatchPictures read_pictures(const std::filesystem::path& dir, const WindowVisionConfig& vision) {
  PatchPictures pictures = read_patch_pictures(dir, vision);
  pictures.videos.min_pixels = kLeastFilmPixels;
  pictures.videos.max_pixels = kMostFilmPixels;
  return pictures;
}

/// A folder's parts that rows are made with; shared, as its processors are.
struct Parts {
  Thinker thinker;
  PatchPictures pictures;
  LogMelMaker mel;

  MediaBlock clip(const Audio& audio, const MediaOptions& options, const std::string& where) const {
    const int64_t rate = mel.config().rate;
    if (options.sampling_rate > 0 && options.sampling_rate != rate) {
      throw usage_error(fmt::format("SAMPLING_RATE={}: expected {}, at which the audio tower hears "
                                    "(preprocessor_config.json sampling_rate)",
                                    options.sampling_rate, rate),
                        "files of any rate are read, and brought to it");
    }
    return clip_block(mel, thinker.sound, audio, where);
  }
  PatchImageConfig film_limits(const MediaOptions& options) const {
    PatchImageConfig limits = pictures.videos;
    for (const int64_t asked : {options.video_max_pixels, options.film_max_pixels}) {
      if (asked > 0) limits.min_pixels = std::min(limits.min_pixels, asked);
    }
    return limits;
  }
  std::vector<MediaBlock> film(const LoadedMedium& medium, const MediaOptions& options,
                               const std::string& where) const {
    std::vector<MediaBlock> blocks{patch_film(medium, film_limits(options), options, where)};
    if (!medium.sound.samples.empty()) blocks.push_back(clip(medium.sound, options, where));
    return blocks;
  }
};

AudioLimits limits_of(const LogMelConfig& mel) {
  const double seconds = static_cast<double>(mel.padded_samples) / static_cast<double>(mel.rate);
  return {
      .rate = mel.rate, .max_seconds = seconds, .why = fmt::format("the audio tower reads {:g} s at once", seconds)};
}

/// The model is told the rate that was asked for, not the one that whole frames come to. Source: transformers 5.23
/// Qwen2_5OmniProcessor.
FilmChoice timed_frames(const VideoFacts& film, const Video& row, const MediaOptions& options,
                        const std::string& name) {
  FilmChoice choice = evenly_spread_frames(film, row, options, name);
  choice.fps = asked_fps(row, options);
  return choice;
}

BoxRules boxes_of(const std::shared_ptr<const Parts>& parts) {
  BoxRules boxes = qwen_boxes(BoxUnit::kPixels);
  boxes.resized = [parts](std::array<int64_t, 2> edges, const MediaOptions& options, const std::string& where) {
    return patch_edges(edges, parts->pictures.images, options, where);
  };
  return boxes;
}

MediumRules picture_rules(const std::shared_ptr<const Parts>& parts, std::string placeholder) {
  return {.placeholder = std::move(placeholder),
          .prepare =
              [parts](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
                return std::vector{patch_picture(medium, parts->pictures.images, options, where)};
              },
          .spell = filled_with(
              parts->thinker.tokens.image,
              [merge = parts->thinker.vision.merge](const MediaBlock& b) { return merged_tokens(b, merge); }),
          .stretches_thin = true};
}

/// `marks`: the texts between which a woven film stands.
MediumRules film_rules(const std::shared_ptr<const Parts>& parts, std::string placeholder,
                       std::pair<std::string, std::string> marks) {
  return {
      .placeholder = std::move(placeholder),
      .prepare = [parts](const LoadedMedium& medium, const MediaOptions& options,
                         const std::string& where) { return parts->film(medium, options, where); },
      .spell =
          [parts, marks = std::move(marks)](const std::vector<MediaBlock>& blocks, int64_t) {
            const Thinker& thinker = parts->thinker;
            if (blocks.size() == 1) {
              const int64_t count = merged_tokens(blocks.front(), thinker.vision.merge);
              return std::vector<MediaRun>{{.token = thinker.tokens.video, .count = count, .block = 0}};
            }
            std::vector<MediaRun> runs{{.text = marks.first}};
            std::ranges::move(woven_runs(blocks, thinker), std::back_inserter(runs));
            runs.push_back({.text = marks.second});
            return runs;
          },
      .stretches_thin = true,
      .sound = limits_of(parts->mel.config()),
      .takes_sound = true,
      .film = {.choose = timed_frames,
               .shrink =
                   [parts](const Image& frame, size_t frames, const MediaOptions& options, const std::string& where) {
                     const FilmRules rules = patch_film_rules(parts->film_limits(options));
                     return rules.shrink(frame, frames, options, where);
                   },
               .heeds_pixels = true}};
}

MediumRules clip_rules(const std::shared_ptr<const Parts>& parts, std::string placeholder) {
  return {
      .placeholder = std::move(placeholder),
      .prepare = [parts](const LoadedMedium& medium, const MediaOptions& options,
                         const std::string& where) { return std::vector{parts->clip(medium.sound, options, where)}; },
      .spell = filled_with(
          parts->thinker.tokens.audio,
          [sound = parts->thinker.sound](const MediaBlock& clip) { return sound.tokens_of(clip.shape[0]); }),
      .sound = limits_of(parts->mel.config())};
}

/// input_features [A,bins,W] with feature_attention_mask [A,W].
RecordedMedia recorded_clips(const HfInputs& inputs, const Thinker& thinker) {
  RecordedMedia clips{.token = thinker.tokens.audio};
  if (!inputs.contains("input_features")) return clips;
  const Tensor &mel_ABW = inputs.at("input_features"), &mask_AW = inputs.at("feature_attention_mask");
  for (int64_t i = 0; i < mel_ABW.size(0); ++i) {
    const auto frames = mask_AW[i].sum().item<int64_t>();
    MediaBlock block = block_of(mel_ABW[i].narrow(1, 0, frames).t().contiguous(), 0, frames);
    block.modality = Modality::kAudio;
    block.slot = "audio";
    block.facts[kAudioFrames] = {frames, frames};
    clips.add(std::move(block), thinker.sound.tokens_of(frames));
  }
  return clips;
}

/// transformers says positions of rows without media too.
void count_tokens(Features& row) {
  const size_t tokens = row.input_ids.size();
  row.positions.resize(3 * tokens);
  for (size_t i = 0; i < row.positions.size(); ++i) row.positions[i] = static_cast<int32_t>(i % tokens);
}

}  // namespace

MediaBlock clip_block(const LogMelMaker& maker, const SoundConfig& sound, const Audio& audio,
                      const std::string& where) {
  LogMel mel = maker.make(audio.samples, where);
  if (sound.tokens_of(mel.frames) == 0) {
    throw data_error(fmt::format("{}: expected sound of at least {} frames ({} samples each), found {}", where,
                                 2 * sound.pool - 1, maker.config().hop, mel.frames),
                     "leave clips out that are this short");
  }
  return {.modality = Modality::kAudio,
          .slot = "audio",
          .shape = {mel.frames, mel.bins},
          .values = std::move(mel.values),
          .facts = {{kAudioFrames, {mel.frames, mel.frames}}}};
}

std::unique_ptr<Processor> load_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig config = HfConfig::load(place);
  const Thinker thinker = read_thinker(config);
  const HfConfig file = picture_config(dir, {"preprocessor_config.json"}, "feature_extractor");
  const auto parts = std::make_shared<const Parts>(
      Parts{thinker, read_pictures(dir, thinker.vision), LogMelMaker(read_whisper_mel(file, thinker.sound.tower))});
  ChatParts chat = load_chat_parts(place);
  const auto text_of = [&](int32_t token) { return placeholder_of(chat.tokenizer, token, config.where()); };
  const MediaTokens& tokens = thinker.tokens;
  chat.media.boxes = boxes_of(parts);
  chat.media.kinds[Modality::kImage] = picture_rules(parts, text_of(tokens.image));
  chat.media.kinds[Modality::kVideo] =
      film_rules(parts, text_of(tokens.video), {text_of(tokens.audio_begin), text_of(tokens.audio_end)});
  chat.media.kinds[Modality::kAudio] = clip_rules(parts, text_of(tokens.audio));
  if (speaks(config)) {
    chat.speech = read_talker(config, thinker.text).rules;
    const std::filesystem::path voices = dir / "spk_dict.pt";
    if (std::filesystem::exists(voices)) chat.speech->speakers = read_speakers(voices);
  }
  chat.media.place = [rules = thinker.mrope()](Features& features) { set_mrope_positions(features, rules); };
  return std::make_unique<ChatProcessor>(std::move(chat));
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  constexpr int64_t kFrames = 1000;  // ten seconds
  const Thinker thinker = read_thinker(config);
  Features row = typical_patch_row(thinker.vision, tokens);
  const int64_t taken = count_places(row.media), count = thinker.sound.tokens_of(kFrames);
  if (taken + count < tokens) {
    MediaBlock clip{.modality = Modality::kAudio,
                    .slot = "audio",
                    .shape = {kFrames, thinker.sound.tower.bins},
                    .facts = {{kAudioFrames, {kFrames, kFrames}}}};
    clip.places.resize(static_cast<size_t>(count));
    std::iota(clip.places.begin(), clip.places.end(), static_cast<int32_t>(taken));
    row.media.push_back(std::move(clip));
    std::fill_n(row.labels.begin() + taken, count, -100);
  }
  set_mrope_positions(row, thinker.mrope());
  return row;
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  const Thinker thinker = read_thinker(config);
  const MediaTokens& tokens = thinker.tokens;
  const int64_t merge = thinker.vision.merge;
  std::vector<Features> rows = rows_of_hf(inputs);
  deal_media(rows,
             {recorded_pictures(inputs, tokens.image, merge),
              recorded_films(inputs, tokens.video, merge, "video_second_per_grid"), recorded_clips(inputs, thinker)});
  for (auto& row : rows) {
    set_mrope_positions(row, thinker.mrope());
    if (row.positions.empty()) count_tokens(row);
  }
  return rows;
}

}  // namespace lockstep::qwen2_5_omni
