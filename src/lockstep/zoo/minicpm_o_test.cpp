// How MiniCPM-o's rows of sound are spelled, what is refused, and which parts a folder may do without.
#include <algorithm>
#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/key_map.h"
#include "lockstep/model/layers/whisper_layout.h"
#include "lockstep/model/weights.h"
#include "lockstep/zoo/minicpm_sound.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/straight_run.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path folder() { return odd_folder("minicpm_o_2_6"); }

Sample sample_of(const std::string& text, const std::vector<std::string>& sounds) {
  Sample sample;
  sample.messages = {{.role = "user", .content = text}};
  for (const auto& sound : sounds) sample.audios.push_back((folder() / "media" / sound).string());
  sample.where = "rows.jsonl:1";
  return sample;
}

class SoundRowsTest : public testing::Test {
 protected:
  Features row_of(const Sample& sample) const { return processor_->prompt_features(sample, {}); }
  std::string refused(const Sample& sample) const {
    return refusal_of([&] { (void)row_of(sample); }, ExitCode::kData);
  }
  /// Tokens of a text between two marks, by their number.
  std::vector<int64_t> spans(const Features& row) const {
    const int32_t begin = *processor_->tokenizer().id_of("<|audio_start|>"),
                  end = *processor_->tokenizer().id_of("<|audio_end|>");
    std::vector<int64_t> lengths;
    int64_t first = 0;
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      if (row.input_ids[i] == begin) first = static_cast<int64_t>(i) + 1;
      if (row.input_ids[i] == end) lengths.push_back(static_cast<int64_t>(i) - first);
    }
    return lengths;
  }
  std::unique_ptr<Processor> processor_ = family_named("minicpm_o_2_6").processor(folder() / "checkpoint");
};

TEST_F(SoundRowsTest, AClipIsSpansOfASecondBetweenMarks) {
  EXPECT_EQ(spans(row_of(sample_of("<audio>What?", {"b.wav"}))), (std::vector<int64_t>{5}));  // 31 frames, 16 states
  Sample longer = sample_of("<audio>What?", {});
  longer.audios = {write_clip("long.wav", 16000 * 3 / 2)};  // 150 frames, 75 states, a token of three
  const Features row = row_of(longer);
  EXPECT_EQ(spans(row), (std::vector<int64_t>{16, 9}));
  ASSERT_EQ(row.media.size(), 1U);
  EXPECT_EQ(row.media[0].places.size(), 25U);
  EXPECT_EQ(row.media[0].shape, (std::vector<int64_t>{150, 80}));
}

TEST_F(SoundRowsTest, WhatTheTowerCannotReadIsRefusedAndNeverCut) {
  Sample sample = sample_of("<audio>What?", {});
  sample.audios = {write_clip("longest.wav", 202 * 160)};  // 101 positions
  EXPECT_EQ(row_of(sample).media[0].shape[0], 202);
  sample.audios = {write_clip("longer.wav", 202 * 160 + 1)};
  EXPECT_NE(refused(sample).find("2.02"), std::string::npos) << refused(sample);
  sample.audios = {write_clip("short.wav", 4 * 160)};
  EXPECT_NE(refused(sample).find("found 4"), std::string::npos) << refused(sample);
  EXPECT_NE(refused(sample_of("<|audio_start|>", {})).find("\"<|audio_start|>\""), std::string::npos);
  Sample picture = sample_of("<image>What?", {});
  picture.images = {"a.png"};
  EXPECT_NE(refused(picture), "") << "this folder sees nothing";
}

TEST_F(SoundRowsTest, ARowSaysTheSameAloneOrBesideOthersWithClips) {
  const HfConfig config = HfConfig::load(folder() / "checkpoint");
  const Model model = family_of(config).build(config);
  const Weights weights = Weights::open(folder() / "checkpoint");
  const KeyMap keys = KeyMap::match(model, weights);
  const StraightRun run(model, weights, keys, Dtype::kF32);
  const std::vector<Features> rows{row_of(sample_of("<audio>What?", {"b.wav"})),
                                   row_of(sample_of("<audio><audio>And these two?", {"a.wav", "b.wav"})),
                                   row_of(sample_of("Hello", {}))};
  const Tensor together = run.greedy(rows, 6);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(run.greedy({rows[static_cast<size_t>(i)]}, 6)[0].equal(together[i])) << i;
  }
}

TEST(MiniCpmO, PartsThatAreNotThereAreNotBuilt) {
  const auto holds = [](const Model& model, Component component) {
    return std::ranges::any_of(model.blocks, [&](const auto& block) { return block->component() == component; });
  };
  Json config = odd_config("minicpm_o_2_6");
  const Model hears = built(config);
  EXPECT_TRUE(holds(hears, Component::kAudio) && holds(hears, Component::kAudioProjector));
  EXPECT_FALSE(holds(hears, Component::kVision));
  config["init_audio"] = false;
  EXPECT_FALSE(holds(built(config), Component::kAudio));
  config["init_vision"] = true;
  config["hidden_size"] = 132;
  EXPECT_TRUE(holds(built(config), Component::kVision));
}

TEST(MiniCpmO, WhatChangesTheMathematicsIsRefusedByItsKey) {
  const std::vector<std::pair<std::string, Json>> root{
      {"version", 4.5}, {"audio_pool_step", 0}, {"audio_chunk_length", 0.001}, {"audio_chunk_length", 1e300}};
  for (const auto& [key, value] : root) {
    Json config = odd_config("minicpm_o_2_6");
    config[key] = value;
    EXPECT_NE(refusal_of_config(config).find(key), std::string::npos) << key << ": " << refusal_of_config(config);
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"d_model", 37}, {"encoder_ffn_dim", 100}, {"scale_embedding", true}, {"max_source_positions", 0}}) {
    Json config = odd_config("minicpm_o_2_6");
    config["audio_config"][key] = value;
    EXPECT_NE(refusal_of_config(config).find("audio_config"), std::string::npos)
        << key << ": " << refusal_of_config(config);
  }
}

TEST(MiniCpmO, ATypicalRowHoldsAClipWhereThereIsRoom) {
  const HfConfig config(odd_config("minicpm_o_2_6"), "config.json");  // 202 frames at most, three states a token
  const auto typical = family_named("minicpm_o_2_6").typical_row;
  EXPECT_TRUE(typical(config, 1).media.empty());
  const Features row = typical(config, 100);
  ASSERT_EQ(row.media.size(), 1U);
  EXPECT_EQ(count_places(row.media), 33);
  EXPECT_EQ(std::ranges::count(row.labels, -100), 33);
  EXPECT_LE(count_places(typical(config, 12).media), 11);
}

}  // namespace
}  // namespace lockstep
