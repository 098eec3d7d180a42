// How Omni's rows are spelled and placed, what is refused, what is carried. Numbers are held by recorded oracles (verify).
#include "lockstep/zoo/qwen2_5_omni.h"

#include <algorithm>
#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/key_map.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/straight_run.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

using Ints = std::vector<int32_t>;

fs::path folder() { return odd_folder("qwen2_5_omni"); }

Json recorded_config() { return odd_config("qwen2_5_omni"); }

std::vector<std::string> keys_of(const Model& model) {
  std::vector<std::string> keys;
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      for (const auto& source : param.sources) {
        if (!param.tied) keys.push_back(source.key);
      }
    }
  }
  for (const auto& source : model.unused) keys.push_back(source.key);
  return keys;
}

TEST(Qwen25Omni, OldAndNewSpellingsOfTheConfigGiveTheSameModel) {
  const Model released = built(recorded_config());
  const Model saved_anew = built(read_json(folder() / "config_transformers5.json"));
  EXPECT_EQ(keys_of(released), keys_of(saved_anew));
  EXPECT_EQ(released.dims.head_dim, saved_anew.dims.head_dim);
  Json ids = recorded_config();
  auto& thinker = ids["thinker_config"];
  for (const std::string kind : {"audio", "image", "video"}) {
    thinker[kind + "_token_id"] = thinker[kind + "_token_index"];
    thinker.erase(kind + "_token_index");
  }
  const auto read = [](const Json& json) { return qwen2_5_omni::read_thinker(HfConfig(json, "config.json")).tokens; };
  EXPECT_EQ(read(ids).audio, read(recorded_config()).audio);
  EXPECT_EQ(read(ids).video, read(recorded_config()).video);
}

TEST(Qwen25Omni, ReleasedSizesNameEveryTensorOfThinkerAndTalker) {
  const fs::path configs = fs::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs";
  const auto named = [&](const char* size, const std::string& beginning) {
    const auto keys = keys_of(built(read_json(configs / size / "config.json")));
    return std::ranges::count_if(keys, [&](const auto& key) { return key.starts_with(beginning); });
  };
  EXPECT_EQ(named("Qwen2.5-Omni-7B", "thinker."), 1346);
  EXPECT_EQ(named("Qwen2.5-Omni-3B", "thinker."), 1442);
  EXPECT_EQ(named("Qwen2.5-Omni-7B", "talker."), 24 * 12 + 5);  // 341 where config.json says no layers
}

TEST(Qwen25Omni, WhatTransformers5KeepsInMemoryIsReadToo) {
  const Model model = built(recorded_config());
  const Weights weights = Weights::open(folder() / "checkpoint");
  const fs::path dir = fs::path(testing::TempDir()) / "omni_memory";
  fs::remove_all(dir);
  std::vector<TensorSpec> specs = weights.specs();
  const auto renamed = [](std::string name) {
    for (const std::string part : {"visual.", "audio_tower."}) {
      if (name.starts_with("thinker." + part)) return "thinker.model." + name.substr(8);
    }
    const std::string text = "thinker.model.";
    return name.starts_with(text) ? text + "language_model." + name.substr(text.size()) : name;
  };
  fs::create_directories(dir);
  for (auto& spec : specs) spec.name = renamed(spec.name);
  SafetensorsWriter writer(dir, specs);
  for (const auto& spec : weights.specs()) writer.write(renamed(spec.name), weights.read(spec.name));
  writer.finish();
  const Weights moved = Weights::open(dir);
  const KeyMap keys = KeyMap::match(model, moved);
  EXPECT_EQ(keys.dialect(), "in memory");
  const ParamSource source = model.blocks.back()->params().front().sources.front();
  EXPECT_TRUE(keys.read(moved, source).equal(KeyMap::match(model, weights).read(weights, source)));
}

TEST(Qwen25Omni, WhatSpeaksIsCarriedAndMissedWhereTheConfigPromisesIt) {
  const Model model = built(recorded_config());
  const Weights weights = Weights::open(folder() / "checkpoint");
  const KeyMap keys = KeyMap::match(model, weights);
  const auto carried = unmatched(model, weights, keys).carried;
  EXPECT_EQ(carried.size() + keys_of(model).size(), weights.specs().size());

  const fs::path dir = fs::path(testing::TempDir()) / "omni_mute";
  fs::remove_all(dir);
  fs::create_directories(dir);
  std::vector<TensorSpec> kept = weights.specs();
  std::erase_if(
      kept, [](const TensorSpec& spec) { return spec.name.starts_with("t") && !spec.name.starts_with("thinker."); });
  SafetensorsWriter writer(dir, kept);
  for (const auto& spec : kept) writer.write(spec.name, weights.read(spec.name));
  writer.finish();
  const Weights mute = Weights::open(dir);
  const std::string said = refusal_of([&] { (void)KeyMap::match(model, mute); });  // it would not open elsewhere
  for (const char* word : {"enable_audio_output", "talker.*", "config.json", "released model", "ENABLE_AUDIO_OUTPUT=0"})
    EXPECT_NE(said.find(word), std::string::npos) << word << " in " << said;
  Json silent = recorded_config();
  silent["enable_audio_output"] = false;
  EXPECT_NO_THROW(KeyMap::match(built(silent), mute));
  EXPECT_NO_THROW(KeyMap::match(built(silent), weights)) << "what is there all the same is carried";
}

TEST(Qwen25Omni, TheThinkersFolderAloneIsRead) {
  Json config = recorded_config()["thinker_config"];
  const Model thinker = built(config);
  EXPECT_EQ(thinker.family, "qwen2_5_omni");
  EXPECT_FALSE(thinker.speech);
  const Weights weights = Weights::open(folder() / "checkpoint");
  const fs::path dir = fs::path(testing::TempDir()) / "omni_thinker";
  for (const std::string text : {"model.", "model.language_model."}) {
    const std::string tower = text == "model." ? "" : "model.";  // as a file has it, and as it is held in memory
    fs::remove_all(dir);
    fs::create_directories(dir);
    std::vector<TensorSpec> specs = weights.specs();
    std::erase_if(specs, [](const TensorSpec& spec) { return !spec.name.starts_with("thinker."); });
    const auto renamed = [&](const std::string& name) {
      const std::string rest = name.substr(8);
      return rest.starts_with("model.") ? text + rest.substr(6) : rest.starts_with("lm_head") ? rest : tower + rest;
    };
    const std::vector<TensorSpec> whole = specs;
    for (auto& spec : specs) spec.name = renamed(spec.name);
    SafetensorsWriter writer(dir, specs);
    for (const auto& spec : whole) writer.write(renamed(spec.name), weights.read(spec.name));
    writer.finish();
    const Weights alone = Weights::open(dir);
    const KeyMap keys = KeyMap::match(thinker, alone);
    EXPECT_EQ(keys.dialect(), tower.empty() ? "the thinker alone" : "the thinker in memory");
    const ParamSource source = thinker.blocks.back()->params().front().sources.front();
    EXPECT_TRUE(keys.read(alone, source).equal(KeyMap::match(thinker, weights).read(weights, source)));
    Json promising = config;
    promising["enable_audio_output"] = true;
    const std::string said = refusal_of([&] { (void)KeyMap::match(built(promising), alone); });
    for (const char* cure : {"set enable_audio_output to false", "released model", "ENABLE_AUDIO_OUTPUT=0"})
      EXPECT_NE(said.find(cure), std::string::npos) << cure << " in " << said;
  }
}

TEST(Qwen25Omni, RefusesWhatDoesNotFitByItsKey) {
  const auto with = [](const std::string& part, const std::string& key, const Json& value) {
    Json config = recorded_config();
    Json& thinker = config["thinker_config"];
    (part.empty() ? thinker : thinker[part])[key] = value;
    return refusal_of_config(config);
  };
  const std::vector<std::tuple<std::string, std::string, Json>> wrong{
      {"audio_config", "output_dim", 37},
      {"audio_config", "d_model", 37},
      {"audio_config", "n_window", 0},
      {"audio_config", "n_window", 32},  // more than max_source_positions
      {"audio_config", "scale_embedding", true},
      {"audio_config", "activation_function", "swish2"},
      {"vision_config", "out_hidden_size", 35},
      {"vision_config", "window_size", 1},
      {"", "audio_token_index", 1 << 20},
      {"", "seconds_per_chunk", 0},
      {"", "position_id_per_seconds", -1},
      {"text_config", "rope_scaling", {{"type", "default"}, {"mrope_section", {1, 1, 1}}}},
      {"text_config", "rope_scaling", {{"type", "longrope"}}},
  };
  for (const auto& [part, key, value] : wrong) {
    const std::string named = key == "rope_scaling" ? "" : key;
    const std::string said = with(part, key, value);
    EXPECT_NE(said, "") << part << " " << key;
    EXPECT_NE(said.find(named), std::string::npos) << key << ": " << said;
  }
}

TEST(Qwen25Omni, ComponentsAreLeftOutOneByOne) {
  for (const auto& [component, reads] : {std::pair{Component::kAudio, Modalities(Modality::kAudio)},
                                         std::pair{Component::kVision, Modalities(kPictures)}}) {
    Model model = built(recorded_config());
    EXPECT_EQ(components_of(model).size(), 6U) << names_of(components_of(model));
    const size_t before = keys_of(model).size();
    leave_out(model, {component});
    EXPECT_EQ(components_of(model).size(), 4U) << "and what reads it alone";
    EXPECT_EQ(unread_media(model), reads);
    EXPECT_EQ(keys_of(model).size(), before) << "their tensors stay in the files";
  }
}

class OmniRows : public testing::Test {
 protected:
  static std::string file(const std::string& name) { return (folder() / "media" / name).string(); }
  Features row_of(const Sample& sample, const MediaOptions& media = {}) const {
    return processor_->prompt_features(sample, {.media = media});
  }
  std::string refused(const Sample& sample, const MediaOptions& media = {}, ExitCode code = ExitCode::kData) const {
    return refusal_of([&] { (void)row_of(sample, media); }, code);
  }
  static Sample asking(const std::string& text, const std::vector<std::string>& sounds, size_t films = 0) {
    Sample sample;
    sample.messages = {{.role = "user", .content = text}};
    sample.audios = sounds;
    for (size_t i = 0; i < films; ++i) {
      Video film{.frames = {}, .fps = 5};
      for (int k = 0; k < 7; ++k) film.frames.push_back(file("clip_0" + std::to_string(k) + ".png"));
      sample.videos.push_back(film);
    }
    sample.where = "rows.jsonl:1";
    return sample;
  }
  /// "v8 a9 ": tokens of films, clips and pictures, in runs.
  std::string runs(const Features& row) const {
    std::string out;
    int last = -1;
    int64_t count = 0;
    const auto filled = filled_by(row.media, row.input_ids.size());
    const auto close = [&] {
      if (last >= 0) {
        const Modality kind = row.media[static_cast<size_t>(last)].modality;
        out += (kind == Modality::kAudio ? "a" : kind == Modality::kVideo ? "v" : "i") + std::to_string(count) + " ";
      }
    };
    for (const int block : filled) {
      if (block != last) {
        close();
        count = 0;
      }
      last = block;
      ++count;
    }
    close();
    return out;
  }
  MediaOptions small_films(bool woven) const {
    return {.video_min_pixels = 128, .video_max_pixels = 768, .audio_in_video = woven};
  }
  std::unique_ptr<Processor> processor_ = family_named("qwen2_5_omni").processor(folder() / "checkpoint");
};

TEST_F(OmniRows, MediaStandBetweenTheirMarksUnderTheDefaultSystemMessage) {
  Sample sample = asking("<image>and <audio>?", {file("b.wav")});
  sample.images = {file("a.png")};
  const Features row = row_of(sample);
  EXPECT_EQ(runs(row), "i8 a5 ");  // 0.211 s: 22 frames, 11 states
  const std::string text = processor_->tokenizer().decode(row.input_ids, false);
  EXPECT_EQ(
      text.find(
          "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_bos|><|IMAGE|>"),
      0U)
      << text;
  EXPECT_NE(text.find("<|audio_bos|><|AUDIO|>"), std::string::npos);
  EXPECT_NE(text.find("<|AUDIO|><|audio_eos|>?"), std::string::npos);
}

TEST_F(OmniRows, AFilmTakesTurnsWithItsSound) {
  const Sample sample = asking("<video><audio>What?", {file("a.wav")}, 1);
  EXPECT_EQ(runs(row_of(sample, small_films(false))), "v8 a23 ");
  // Ten positions a chunk: groups of frames at 0, 4, 8 and 12, sound at 0 to 22.
  const Features row = row_of(sample, small_films(true));
  EXPECT_EQ(runs(row), "v6 a10 v2 a13 ");
  ASSERT_EQ(row.media.size(), 2U);
  const std::string text = processor_->tokenizer().decode(row.input_ids, false);
  EXPECT_NE(text.find("<|vision_bos|><|audio_bos|><|VIDEO|>"), std::string::npos) << text;
  EXPECT_NE(text.find("<|AUDIO|><|audio_eos|><|vision_eos|>What?"), std::string::npos) << text;
}

TEST_F(OmniRows, WhatTheTowerCannotReadIsRefusedWithBothNumbersAndNeverCut) {
  EXPECT_EQ(row_of(asking("<audio>", {write_clip("omni_longest.wav", 16000)})).media[0].shape[0], 100);
  const std::string longer = refused(asking("<audio>", {write_clip("omni_longer.wav", 16480)}));
  EXPECT_NE(longer.find("1.03"), std::string::npos) << longer;
  EXPECT_NE(longer.find("1 s"), std::string::npos) << longer;
  EXPECT_EQ(runs(row_of(asking("<audio>", {write_clip("omni_shortest.wav", 3 * 160)}))), "a1 ");
  EXPECT_NE(refused(asking("<audio>", {write_clip("omni_short.wav", 2 * 160)})).find("found 2"), std::string::npos);
}

TEST_F(OmniRows, APlaceholderInTheTextPassesForNoMedium) {
  EXPECT_NE(refused(asking("<|AUDIO|>", {})).find("\"<|AUDIO|>\""), std::string::npos);
  EXPECT_NE(refused(asking("<|AUDIO|> or <audio>?", {file("b.wav")})).find("\"<|AUDIO|>\""), std::string::npos);
  EXPECT_NE(refused(asking("<audio>?", {file("b.wav"), file("b.wav")})).find("found 1 mark(s) and 2 audio(s)"),
            std::string::npos);
}

TEST_F(OmniRows, AFilmWithoutItsSoundAndAnotherRateAreRefused) {
  EXPECT_NE(refused(asking("<video>What?", {}, 1), small_films(true)).find("USE_AUDIO_IN_VIDEO"), std::string::npos);
  MediaOptions fast = small_films(false);
  fast.sampling_rate = 44100;
  EXPECT_NE(refused(asking("<audio>", {file("b.wav")}), fast, ExitCode::kUsage).find("expected 16000"),
            std::string::npos);
  fast.sampling_rate = 16000;
  EXPECT_EQ(refused(asking("<audio>", {file("b.wav")}), fast), "");
}

TEST_F(OmniRows, FilmsHaveLimitsOfTheirOwn) {
  const auto patches = [&](const MediaOptions& media) {
    return row_of(asking("<video>", {}, 1), media).media[0].shape[0];
  };
  EXPECT_GE(patches({}), 4 * 100352 / 16) << "four groups of frames of 128 x 28 x 28 pixels, whatever the folder says";
  EXPECT_EQ(patches({.video_max_pixels = 768}), 4 * 960 / 16) << "what is asked holds below that too: the next size";
}

TEST_F(OmniRows, ARowSaysTheSameAloneOrBesideOthersWithMedia) {
  const HfConfig config = HfConfig::load(folder() / "checkpoint");
  const Model model = family_of(config).build(config);
  const Weights weights = Weights::open(folder() / "checkpoint");
  const KeyMap keys = KeyMap::match(model, weights);
  const StraightRun run(model, weights, keys, Dtype::kF32);
  Sample both = asking("<image><audio>And these?", {file("a.wav")});
  both.images = {file("b.jpg")};
  const std::vector<Features> rows{row_of(asking("<audio>What?", {file("b.wav")})), row_of(both),
                                   row_of(asking("<video><audio>?", {file("a.wav")}, 1), small_films(true)),
                                   row_of(asking("Hello", {}))};
  const Tensor together = run.greedy(rows, 6);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(run.greedy({rows[static_cast<size_t>(i)]}, 6)[0].equal(together[i])) << i;
  }
}

TEST(OmniWeave, ATokenBeyondTwoChunksBeginsTheNextOneAlone) {
  qwen2_5_omni::Thinker thinker;
  thinker.vision.merge = 2;
  thinker.tokens = {};
  thinker.positions_per_second = 25;
  thinker.positions_of_chunk = 50;
  MediaBlock film{.facts = {{"grid_thw", {3, 2, 4}}}, .step_seconds = 4.4};  // two tokens at 0, 110 and 220
  MediaBlock sound{.modality = Modality::kAudio, .shape = {240, 20}};        // 60 tokens
  std::vector<std::pair<size_t, int64_t>> runs;
  for (const MediaRun& run : qwen2_5_omni::woven_runs({film, sound}, thinker)) runs.emplace_back(run.block, run.count);
  EXPECT_EQ(runs, (std::vector<std::pair<size_t, int64_t>>{{0, 2}, {1, 50}, {0, 1}, {1, 10}, {0, 1}, {0, 1}, {0, 1}}));
}

MediaBlock film_at(Ints places, std::vector<int64_t> grid, double seconds) {
  return {.modality = Modality::kVideo,
          .facts = {{"grid_thw", std::move(grid)}},
          .step_seconds = seconds,
          .places = std::move(places)};
}
MediaBlock sound_at(Ints places) {
  return {.modality = Modality::kAudio, .slot = "audio", .places = std::move(places)};
}

TEST(OmniPlaces, AFilmAndItsSoundBeginAtOnceAndMarksShareAPosition) {
  Features row;
  row.input_ids = {1, 2, 3, 9, 9, 7,
                   7, 9, 7, 4, 5, 6};  // text, two marks, film 2, sound 2, film 1, sound 1, two marks, text
  row.media = {film_at({3, 4, 7}, {3, 2, 2}, 0.2), sound_at({5, 6, 8})};
  set_mrope_positions(row, {.merge = 2, .tokens_per_second = 10, .behind_time = true});
  const Ints time{0, 1, 1, 2, 4, 2, 3, 6, 4, 5, 5, 6}, row_axis{0, 1, 1, 2, 2, 2, 3, 2, 4, 5, 5, 6};
  EXPECT_EQ(Ints(row.positions.begin(), row.positions.begin() + 12), time);
  EXPECT_EQ(Ints(row.positions.begin() + 12, row.positions.begin() + 24), row_axis);
}

// As float32 makes them of ((0, 1, …) * 0.08) * 25: the seventh group of frames begins at 12, the sixth at 9.
TEST(OmniPlaces, ATimeIsMadeOfSecondsFirst) {
  Features row;
  row.input_ids = {9, 9, 9, 9, 9, 9, 9, 2};
  row.media = {film_at({0, 1, 2, 3, 4, 5, 6}, {7, 2, 2}, 2.0 / 25)};
  MropeRules rules{.merge = 2, .tokens_per_second = 25, .behind_time = true, .seconds_first = true};
  set_mrope_positions(row, rules);
  EXPECT_EQ(Ints(row.positions.begin(), row.positions.begin() + 8), (Ints{0, 2, 4, 6, 8, 9, 12, 13}));
  rules.seconds_first = false;
  set_mrope_positions(row, rules);
  EXPECT_EQ(row.positions[5], 10);
}

TEST(OmniPlaces, TextGoesOnBehindAVideosLastMomentAndSoundCountsAsText) {
  Features row;
  row.input_ids = {9, 9, 1, 7, 7, 2};
  row.media = {film_at({0, 1}, {2, 2, 2}, 1.0), sound_at({3, 4})};
  set_mrope_positions(row, {.merge = 2, .tokens_per_second = 25, .behind_time = true});
  EXPECT_EQ(Ints(row.positions.begin(), row.positions.begin() + 6), (Ints{0, 25, 26, 27, 28, 29}));
  row.media.erase(row.media.begin());
  row.positions.clear();
  set_mrope_positions(row, {.behind_time = true});
  EXPECT_TRUE(row.positions.empty()) << "without a grid tokens are counted";
}

TEST(Qwen25Omni, ATypicalRowHoldsAPictureAndAClipWhereThereIsRoom) {
  const HfConfig config(recorded_config(), "config.json");
  const auto typical = family_named("qwen2_5_omni").typical_row;
  EXPECT_TRUE(typical(config, 16).media.empty());
  const Features heard = typical(config, 300);  // 56 x 56 tokens of a picture do not fit
  ASSERT_EQ(heard.media.size(), 1U);
  EXPECT_EQ(count_places(heard.media), 250);
  EXPECT_EQ(typical(config, 4000).media.size(), 2U);
}

}  // namespace
}  // namespace lockstep
