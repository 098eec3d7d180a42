// The family qwen2_5_vl beside its recorded oracles: released sizes, positions, and what becomes of rows.
#include "lockstep/zoo/qwen2_5_vl.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Ints = std::vector<int32_t>;

/// The config.json of a released size, old spelling.
Json released(int64_t hidden, int64_t mlp, int64_t layers, int64_t heads, int64_t kv_heads, int64_t vision_mlp,
              bool tied) {
  return {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
          {"model_type", "qwen2_5_vl"},
          {"hidden_size", hidden},
          {"intermediate_size", mlp},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"max_position_embeddings", 128000},
          {"max_window_layers", 70},
          {"use_sliding_window", false},
          {"sliding_window", 32768},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
          {"tie_word_embeddings", tied},
          {"vocab_size", hidden == 2048 ? 151936 : 152064},
          {"vision_config",
           {{"depth", 32},
            {"hidden_act", "silu"},
            {"hidden_size", 1280},
            {"intermediate_size", vision_mlp},
            {"num_heads", 16},
            {"in_chans", 3},
            {"out_hidden_size", hidden},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"spatial_patch_size", 14},
            {"window_size", 112},
            {"fullatt_block_indexes", {7, 15, 23, 31}},
            {"tokens_per_second", 2},
            {"temporal_patch_size", 2}}}};
}

Model build(const Json& json) { return family_named("qwen2_5_vl").build(HfConfig(json, "config.json")); }

int64_t num_params(const Json& json) {
  int64_t total = 0;
  const Model model = build(json);
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) total += param.tied ? 0 : param.numel();
  }
  return total;
}

std::string refusal(const Json& json) {
  try {
    build(json);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Qwen25Vl, ReleasedSizesHaveAsManyParametersAsTheirNamesSay) {
  EXPECT_EQ(num_params(released(2048, 11008, 36, 16, 2, 3420, true)), 3754622976);    // 3B
  EXPECT_EQ(num_params(released(3584, 18944, 28, 28, 4, 3420, false)), 8292166656);   // 7B
  EXPECT_EQ(num_params(released(5120, 27648, 64, 40, 8, 3456, false)), 33452718336);  // 32B
  EXPECT_EQ(num_params(released(8192, 29568, 80, 64, 8, 3456, false)), 73410777344);  // 72B
}

TEST(Qwen25Vl, OldAndNewSpellingsOfTheConfigGiveTheSameModel) {
  const Json flat = released(2048, 11008, 36, 16, 2, 3420, true);
  Json nested = {
      {"architectures", flat["architectures"]}, {"model_type", "qwen2_5_vl"}, {"vision_config", flat["vision_config"]}};
  nested["text_config"] = flat;
  nested["text_config"].erase("vision_config");
  nested["text_config"].erase("rope_scaling");
  nested["text_config"]["model_type"] = "qwen2_5_vl_text";
  nested["text_config"]["rope_parameters"] = {
      {"rope_type", "default"}, {"type", "mrope"}, {"rope_theta", 1e6}, {"mrope_section", {16, 24, 24}}};
  const Model a = build(flat), b = build(nested);
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    ASSERT_EQ(a.blocks[i]->params().size(), b.blocks[i]->params().size());
    for (size_t p = 0; p < a.blocks[i]->params().size(); ++p) {
      EXPECT_EQ(a.blocks[i]->params()[p].sources, b.blocks[i]->params()[p].sources);
      EXPECT_EQ(a.blocks[i]->params()[p].tied, b.blocks[i]->params()[p].tied);
    }
  }
}

/// The tower's rope has a name of its own since transformers 5; "default" is what older ones wrote.
TEST(Qwen25Vl, TheTowersRopeMayBeCalledDefault) {
  Json json = released(2048, 11008, 36, 16, 2, 3420, true);
  for (const char* type : {"axial", "default"}) {
    json["vision_config"]["rope_parameters"] = {{"rope_type", type}, {"rope_theta", 10000.0}};
    EXPECT_EQ(refusal(json), "") << type;
  }
  json["vision_config"]["rope_parameters"]["rope_type"] = "yarn";
  EXPECT_NE(refusal(json).find("rope_type: expected axial or default, found \"yarn\""), std::string::npos);
}

TEST(Qwen25Vl, RefusesWhatDoesNotFitByName) {
  const auto with = [](const std::function<void(Json&)>& change) {
    Json json = released(2048, 11008, 36, 16, 2, 3420, true);
    change(json);
    return refusal(json);
  };
  EXPECT_EQ(with([](Json&) {}), "");
  EXPECT_NE(with([](Json& j) {
              j["rope_scaling"]["mrope_section"] = {16, 24, 23};
            }).find("sum up to 64"),
            std::string::npos);
  EXPECT_NE(with([](Json& j) { j["rope_scaling"]["mrope_interleaved"] = true; }).find("mrope_interleaved"),
            std::string::npos);
  EXPECT_NE(with([](Json& j) { j["vision_config"]["out_hidden_size"] = 5; }).find("out_hidden_size: expected 2048"),
            std::string::npos);
  EXPECT_NE(with([](Json& j) { j["vision_config"]["window_size"] = 20; }).find("at least 28"), std::string::npos);
  EXPECT_NE(with([](Json& j) { j["vision_config"]["fullatt_block_indexes"] = {32}; }).find("0 to 31"),
            std::string::npos);
  EXPECT_NE(with([](Json& j) {
              j["use_sliding_window"] = true;
              j["layer_types"] = {"sliding_attention"};
            }).find("num_hidden_layers 36, found 1"),
            std::string::npos);
}

MediaBlock medium(Grid grid, Ints places, double step_seconds = 0) {
  const auto [frames, high, wide] = grid;
  return {.shape = {frames * high * wide, 1},
          .facts = {{"grid_thw", {frames, high, wide}}},
          .step_seconds = step_seconds,
          .places = std::move(places)};
}

TEST(Mrope, PlacesTextOnAllAxesAlikeAndMediaOnTheirGrid) {
  Features row;
  row.input_ids = {1, 9, 9, 9, 9, 9, 9, 2, 3};  // an image of 2 x 3 tokens
  row.media = {medium({1, 4, 6}, {1, 2, 3, 4, 5, 6})};
  set_mrope_positions(row, {.merge = 2, .tokens_per_second = 2});
  EXPECT_EQ(row.positions, (Ints{0, 1, 1, 1, 1, 1, 1, 4, 5,     // time
                                 0, 1, 1, 1, 2, 2, 2, 4, 5,     // row
                                 0, 1, 2, 3, 1, 2, 3, 4, 5}));  // column
}

TEST(Mrope, AVideosTimeRunsWithItsSecondsAndTouchingMediaStayApart) {
  Features row;
  row.input_ids = {8, 8, 8, 9, 4};  // three groups of frames of one token, an image of one token
  row.media = {medium({3, 2, 2}, {0, 1, 2}, 2.0 / 1.5), medium({1, 2, 2}, {3})};
  set_mrope_positions(row, {.merge = 2, .tokens_per_second = 2});
  EXPECT_EQ(row.positions, (Ints{0, 2, 5, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2}));  // 0, 2.67, 5.33 cut
}

// What Qwen2_5_VLTextConfig assumes: 80 layers without a window.
TEST(Qwen25Vl, WindowsBeginWhereItsOwnConfigSays) {
  Json json = released(2048, 11008, 36, 16, 2, 3420, true);
  json["use_sliding_window"] = true;
  json.erase("max_window_layers");
  EXPECT_TRUE(
      read_windows(HfConfig(json, "config.json"), {.sliding_window_flag = true, .first_window_layer = 80}, 36).empty());
  EXPECT_FALSE(read_windows(HfConfig(json, "config.json"), {.sliding_window_flag = true}, 36).empty());
}

TEST(Mrope, RowsWithoutMediaAreCounted) {
  Features row;
  row.input_ids = {1, 2, 3};
  set_mrope_positions(row, {});
  EXPECT_TRUE(row.positions.empty());
}

class Qwen25VlRows : public testing::Test {
 protected:
  static fs::path folder() { return fs::path(LOCKSTEP_FIXTURES) / "oracle/odd/qwen2_5_vl"; }
  static std::string file(const std::string& name) { return (folder() / "media" / name).string(); }
  static Features features(const Sample& sample, const MediaOptions& media = {}) {
    return family_named("qwen2_5_vl").processor(folder() / "checkpoint")->train_features(sample, {.media = media});
  }
  static Sample asking(const std::string& question) {
    Sample sample;
    sample.messages = {{"user", question}, {"assistant", "Yes."}};
    sample.where = "train.jsonl:5";
    return sample;
  }
  static std::string message_of(const Sample& sample) {
    try {
      features(sample);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(Qwen25VlRows, PlaceholdersStandWhereTheMarksStoodAndLineBreaksStay) {
  Sample sample = asking("<image>\nand <video>?");
  sample.images = {file("a.png")};
  sample.videos = {{{file("clip_00.png"), file("clip_01.png"), file("clip_02.png")}, 2.5}};
  const Features row = features(sample);
  ASSERT_EQ(row.media.size(), 2U);
  EXPECT_EQ(row.media[0].facts.at("grid_thw")[0], 1);
  EXPECT_EQ(row.media[1].facts.at("grid_thw")[0], 2);  // three frames in groups of two
  EXPECT_DOUBLE_EQ(row.media[1].step_seconds, 0.8);
  const auto tokens = [](const MediaBlock& block) { return block.shape[0] / 4; };
  EXPECT_EQ(count_places(row.media), tokens(row.media[0]) + tokens(row.media[1]));
  EXPECT_EQ(row.positions.size(), 3 * row.input_ids.size());
  const auto processor = family_named("qwen2_5_vl").processor(folder() / "checkpoint");
  const std::string text = processor->tokenizer().decode(row.input_ids);
  EXPECT_NE(text.find("<|vision_end|>\nand <|vision_start|><|video_pad|>"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("assistant\nYes.<|im_end|>\n")) << text;
}

TEST_F(Qwen25VlRows, BudgetsOfPixelsMakeFewerTokens) {
  Sample sample = asking("<image><video>");
  sample.images = {file("a.png")};
  sample.videos = {{{file("clip_00.png"), file("clip_01.png")}}};
  const auto tokens = [&](const MediaOptions& media, size_t index) {
    return features(sample, media).media[index].shape[0] / 4;
  };
  const int64_t image = tokens({}, 0), video = tokens({}, 1);
  EXPECT_LT(tokens({.max_pixels = 4 * 64}, 0), image);
  EXPECT_EQ(tokens({.max_pixels = 4 * 64}, 1), video);
  EXPECT_LT(tokens({.video_max_pixels = 4 * 64}, 1), video);
  EXPECT_LT(tokens({.video_total_pixels = 3 * 64}, 1), video);
  EXPECT_GT(tokens({.min_pixels = 100 * 64, .max_pixels = 200 * 64}, 0), image);
  EXPECT_LT(tokens({.shrink_to_pixels = 100}, 0), image);
  EXPECT_DOUBLE_EQ(features(sample).media[1].step_seconds, 1.0);  // two frames a second, unless said
  EXPECT_DOUBLE_EQ(features(sample, {.fps = 4}).media[1].step_seconds, 0.5);
}

TEST_F(Qwen25VlRows, MarksMustFitTheMedia) {
  EXPECT_NE(
      message_of(asking("<video>?")).find("train.jsonl:5: expected one <video> mark for each video, found 1 mark(s)"),
      std::string::npos);
  Sample two = asking("<image>?");
  two.images = {file("a.png"), file("c.png")};
  EXPECT_NE(message_of(two).find("found 1 mark(s) and 2 image(s)"), std::string::npos);
  Sample placeholder = asking("<|image_pad|>");
  EXPECT_NE(message_of(placeholder).find("may not hold the placeholder itself: write <image>"), std::string::npos)
      << message_of(placeholder);
}

TEST_F(Qwen25VlRows, AFamilyWithoutVideosSaysSo) {
  Sample sample = asking("<video>?");
  sample.videos = {{{file("clip_00.png")}}};
  const auto llava = fs::path(LOCKSTEP_FIXTURES) / "oracle/odd/llava/checkpoint";
  try {
    family_named("llava").processor(llava)->train_features(sample, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("this model reads no videos"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
