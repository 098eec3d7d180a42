// Tests only: random models with a tower for pictures, one for sound and a talker, and rows that hold any mix of what these
// read and say.
//
// Example:
//   const Towers towers = random_towers(random, /*tied=*/true);
//   const MicroBatch ranks = random_mixed_batch(random, 4, 3, towers);   // for a job over towers.model()
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/slice_image.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/model/layers/whisper_encoder.h"
#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep::test {

inline constexpr std::array kHeldByRows{Modality::kImage, Modality::kVideo, Modality::kAudio, Modality::kSpeech};
inline constexpr int32_t kCodes = 19;

/// Which family's tower sees: pictures of one size (llava), of any size (qwen2_5_vl), or slices through a resampler
/// (minicpm_o_2_6, which also hears by itself).
enum class Sight : uint8_t { kOneSize, kAnySize, kSlices };

/// Whisper's encoder, a projector that pools, and the merge: what a family that only sees gets besides.
struct Ear {
  WhisperConfig tower;
  int64_t pool = 1;  // states that become a token
};

/// Plain values, so that every rank builds the same model.
struct Towers {
  Sight sight = Sight::kOneSize;
  Json config;
  bool hears = true, talks = true;
  Ear ear;
  int64_t queries = 1;  // of a slice

  Model model() const;
  Modalities holds() const {
    Modalities all = hears ? kMedia : kPictures;
    if (talks) all |= Modality::kSpeech;
    return all;
  }
  std::string words() const {
    return std::string(sight == Sight::kOneSize   ? "llava"
                       : sight == Sight::kAnySize ? "qwen2_5_vl"
                                                  : "minicpm_o_2_6") +
           (hears ? " that hears" : " that is deaf") + (talks ? " and talks" : "");
  }
};

inline void add_ear(Model& model, const Ear& ear) {
  const std::string tower = "apm";
  Model parts;
  parts.add<WhisperLayout>(tower + ".layout",
                           WhisperLayoutConfig{.max_positions = ear.tower.max_positions, .pool = ear.pool});
  parts.add<WhisperEmbeddings>(tower, ear.tower);
  for (int64_t i = 0; i < ear.tower.layers; ++i)
    parts.add<WhisperLayer>(tower + ".layers." + std::to_string(i), ear.tower);
  parts.add<WhisperNorm>(tower + ".layer_norm", ear.tower);
  parts.add<AudioProjector>("audio_projection_layer",
                            AudioProjectorConfig{.audio_hidden = ear.tower.hidden, .text_hidden = model.dims.hidden});
  parts.add<MergeMedia>(
      "merge_audio",
      MergeConfig{
          .component = Component::kAudioProjector, .runs_on = Modality::kAudio, .features = "sound", .slot = "audio"});
  model.blocks.insert(model.blocks.begin() + model.input_blocks, std::make_move_iterator(parts.blocks.begin()),
                      std::make_move_iterator(parts.blocks.end()));
  model.input_blocks += static_cast<int64_t>(parts.blocks.size());
}

/// Positions may have one axis or three.
inline TextConfig talker_config() {
  return {.vocab = kCodes,
          .hidden = 12,
          .mlp = 17,
          .layers = 2,
          .heads = 3,
          .kv_heads = 1,
          .head_dim = 4,
          .max_positions = 512,
          .qkv_bias = true,
          .rope = {.inverse_frequencies = {1.0F, 0.1F}, .sections = {1, 0, 1}}};
}

inline SpeechRules speech_rules() {
  return {.speakers = {{"Ann", 39}},
          .text_end = 37,
          .text_pad = 38,
          .code_mask = 18,
          .code_pad = 15,
          .code_start = 16,
          .code_end = 17,
          .codes = kCodes};
}

/// A few codes for what stands from `begin` on.
inline void say(std::mt19937_64& random, Features& row, size_t begin) {
  Speech speech{.speaker = "Ann", .codes = {}};
  for (uint64_t i = 1 + random() % 6; i > 0; --i) speech.codes.push_back(static_cast<int32_t>(random() % 15));
  row.speech = spoken_steps(row, {.begin = begin, .end = row.input_ids.size()}, speech, speech_rules());
}

inline Model Towers::model() const {
  const HfConfig read(config, "test config");
  Model model = family_of(read).build(read);
  if (hears && sight != Sight::kSlices) add_ear(model, ear);
  if (talks) add_talker(model, "talker", talker_config(), model.dims.hidden);
  return model;
}

/// Slices of patches of 2 x 2 through one head of 132 numbers, sound as `ear` says.
inline Json minicpm_o_config(bool tied, int64_t queries, const Ear& ear, bool hears) {
  return {{"architectures", {"MiniCPMO"}},
          {"model_type", "minicpmo"},
          {"version", 2.6},
          {"hidden_size", 132},
          {"intermediate_size", 27},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 3},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", tied},
          {"vocab_size", kVocab},
          {"query_num", queries},
          {"init_audio", hears},
          {"audio_chunk_length", ear.tower.stretch > 0 ? 0.02 * static_cast<double>(ear.tower.stretch) + 0.001 : -1.0},
          {"audio_pool_step", ear.pool},
          {"audio_config",
           {{"d_model", ear.tower.hidden},
            {"encoder_attention_heads", ear.tower.heads},
            {"encoder_ffn_dim", ear.tower.mlp},
            {"encoder_layers", ear.tower.layers},
            {"num_mel_bins", ear.tower.bins},
            {"max_source_positions", ear.tower.max_positions}}},
          {"vision_config",
           {{"model_type", "siglip_vision_model"},
            {"hidden_size", 12},
            {"intermediate_size", 17},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 3},
            {"image_size", 10},
            {"patch_size", 2}}}};
}

/// Sizes that no number of ranks divides, some of them drawn.
inline Towers random_towers(std::mt19937_64& random, bool tied) {
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  Towers towers{.sight = static_cast<Sight>(between(0, 2)),
                .hears = between(0, 3) > 0,
                .talks = between(0, 2) > 0,
                .queries = between(1, 4)};
  WhisperConfig& sound = towers.ear.tower;
  sound = {.layers = between(1, 3), .heads = between(1, 3), .bins = between(3, 9), .max_positions = 24};
  sound.hidden = sound.heads * between(2, 5);
  sound.mlp = 4 * sound.hidden;
  sound.stretch = between(0, 1) * between(2, 5);
  towers.ear.pool = between(1, 3);
  if (towers.sight == Sight::kSlices) {
    towers.config = minicpm_o_config(tied, towers.queries, towers.ear, towers.hears);
    return towers;
  }
  Json& config = towers.config;
  if (towers.sight == Sight::kOneSize) {
    config = llava_config(tied);
    config["text_config"]["num_hidden_layers"] = between(1, 3);
    config["text_config"]["intermediate_size"] = between(17, 31);
    config["vision_config"]["num_hidden_layers"] = between(2, 4);
    config["vision_config"]["hidden_size"] = 3 * between(2, 5);
  } else {
    config = qwen_vl_config(tied);
    config["num_hidden_layers"] = between(1, 3);
    config["intermediate_size"] = between(17, 31);
    config["vision_config"]["depth"] = between(1, 3);
    config["vision_config"]["fullatt_block_indexes"] = Json::array({0});
  }
  return towers;
}

/// A medium as the towers read it, with as many places as it fills.
inline MediaBlock random_medium(std::mt19937_64& random, Modality kind, const Towers& towers, int64_t& fills) {
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  const bool film = kind == Modality::kVideo;
  const int64_t frames = film ? 1 + below(3) : 1;
  MediaBlock block;
  if (kind == Modality::kAudio) {
    const int64_t length = 2 * towers.ear.pool - 1 + below(14);  // at least a token
    block = random_pixels(random, {length, towers.ear.tower.bins});
    block.slot = "audio";
    block.facts[kAudioFrames] = {length, length};
    fills = states_of(length) / towers.ear.pool;
  } else if (towers.sight == Sight::kOneSize) {
    block = random_pixels(random, {frames, 3, kImageSide, kImageSide});
    fills = frames * (kImageSide / kPatch) * (kImageSide / kPatch);
  } else if (towers.sight == Sight::kAnySize) {
    const int64_t high = 2 + 2 * below(3), wide = 2 + 2 * below(3);
    block = random_pixels(random, {frames * high * wide, 3 * 2 * 2 * 2});
    block.facts["grid_thw"] = {frames, high, wide};
    block.step_seconds = film ? 0.8 : 0;
    fills = frames * high * wide / 4;
  } else {
    const int64_t high = 1 + below(5), wide = 1 + below(5);
    block = random_pixels(random, {high * wide, 3 * 2 * 2});
    block.facts[kPatchGrid] = {high, wide};
    fills = towers.queries;
  }
  block.modality = kind;
  return block;
}

/// Text with media of these kinds among it, one or two of each, in any order; about half of the words are targets.
inline Features random_mixed_row(std::mt19937_64& random, const Towers& towers, Modalities kinds) {
  Features row;
  const auto add_text = [&] {
    for (uint64_t t = 1 + random() % 4; t > 0; --t) row.input_ids.push_back(static_cast<int32_t>(random() % 40));
  };
  std::vector<Modality> media;
  for (const Modality kind : kHeldByRows) {
    if (kinds.has(kind) && kind != Modality::kSpeech) media.insert(media.end(), 1 + random() % 2, kind);
  }
  std::shuffle(media.begin(), media.end(), random);
  size_t last = 0;  // where the last words begin
  add_text();
  for (const Modality kind : media) {
    int64_t fills = 0;
    MediaBlock block = random_medium(random, kind, towers, fills);
    for (; fills > 0; --fills) {  // one token for all kinds: what is filled is told by the places alone
      block.places.push_back(static_cast<int32_t>(row.input_ids.size()));
      row.input_ids.push_back(kImageToken);
    }
    row.media.push_back(std::move(block));
    last = row.input_ids.size();
    add_text();
  }
  for (const int32_t id : row.input_ids) row.labels.push_back(id < 40 && random() % 2 == 0 ? id : -100);
  if (towers.sight == Sight::kAnySize) {
    Features seen{.input_ids = row.input_ids};  // a clip's tokens are placed one by one, as text is
    std::ranges::copy_if(row.media, std::back_inserter(seen.media),
                         [](const MediaBlock& block) { return block.modality != Modality::kAudio; });
    set_mrope_positions(seen, {.merge = 2, .tokens_per_second = 2});
    row.positions = std::move(seen.positions);
  }
  if (kinds.has(Modality::kSpeech)) say(random, row, last);
  return row;
}

/// Each of `kinds` with this chance.
inline Modalities some_of(std::mt19937_64& random, Modalities kinds, uint64_t percent) {
  Modalities chosen;
  for (const Modality kind : kHeldByRows) {
    if (random() % 100 < percent && kinds.has(kind)) chosen |= kind;
  }
  return chosen;
}

/// 0 to max_rows rows a rank. A kind of media is nowhere, or on some of the ranks, in some of their rows.
inline MicroBatch random_mixed_batch(std::mt19937_64& random, int world, int max_rows, const Towers& towers) {
  const Modalities anywhere = some_of(random, towers.holds(), 60);
  MicroBatch ranks(static_cast<size_t>(world));
  for (auto& rows : ranks) {
    const Modalities here = some_of(random, anywhere, 50);
    for (uint64_t count = random() % static_cast<uint64_t>(max_rows + 1); count > 0; --count)
      rows.push_back(random_mixed_row(random, towers, some_of(random, here, 60)));
  }
  return ranks;
}

}  // namespace lockstep::test
