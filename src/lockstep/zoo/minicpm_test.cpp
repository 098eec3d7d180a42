// How MiniCPM-V's rows are spelled, which folders are its own, and what it refuses.
#include "lockstep/zoo/minicpm.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path folder() { return odd_folder("minicpm_v_2_6"); }

Sample sample_of(const std::string& text, std::vector<std::string> images, std::vector<Video> videos = {}) {
  Sample sample;
  sample.messages = {{.role = "user", .content = text}};
  for (auto& image : images) sample.images.push_back((folder() / "media" / image).string());
  for (auto& video : videos) {
    for (auto& frame : video.frames) frame = (folder() / "media" / frame).string();
  }
  sample.videos = std::move(videos);
  sample.where = "rows.jsonl:1";
  return sample;
}

/// What a row becomes, its filled tokens as "#" each.
class RowsTest : public testing::Test {
 protected:
  std::string spelled(const Sample& sample, const MediaOptions& media = {}) {
    const Features row = processor_->prompt_features(sample, {.media = media});
    const std::vector<int> filled = filled_by(row.media, row.input_ids.size());
    std::string text;
    std::vector<int32_t> ids;
    const auto flush = [&] {
      text += processor_->tokenizer().decode(ids, /*skip_special=*/false);
      ids.clear();
    };
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      if (filled[i] < 0) {
        ids.push_back(row.input_ids[i]);
        continue;
      }
      flush();
      text += "#";
    }
    flush();
    const size_t begin = text.find("user\n") + 5;
    return text.substr(begin, text.find("<|im_end|>", begin) - begin);
  }
  std::string refused(const Sample& sample) {
    return refusal_of([&] { (void)spelled(sample); }, ExitCode::kData);
  }
  std::unique_ptr<Processor> processor_ = family_named("minicpm_v_2_6").processor(folder() / "checkpoint");
};

TEST_F(RowsTest, APictureIsItsWholeAndItsPartsLineByLine) {
  EXPECT_EQ(spelled(sample_of("<image>What?", {"small.jpg"})), "<image_id>0</image_id><image>###</image>\nWhat?");
  EXPECT_EQ(
      spelled(sample_of("<image>\nWhat?", {"tall.png"})),
      "<image_id>0</image_id><image>###</image><slice>###</slice>\n<slice>###</slice>\n<slice>###</slice>\nWhat?");
  EXPECT_EQ(spelled(sample_of("One <image> and <image>", {"wide.png", "small.jpg"})),
            "One <image_id>0</image_id><image>###</image><slice>###</slice><slice>###</slice><slice>###</slice> and "
            "<image_id>1</image_id><image>###</image>");
}

TEST_F(RowsTest, AFilmIsFramesWithoutNumbersAndUncut) {
  const Video film{.frames = {"wide.png", "small.jpg", "wide.png", "small.jpg"}};
  EXPECT_EQ(spelled(sample_of("<video>Moves?", {}, {film})),
            "<image>###</image>\n<image>###</image>\n<image>###</image>\n<image>###</image>\nMoves?");
  EXPECT_EQ(spelled(sample_of("<video>Moves?", {}, {film}), {.max_frames = 2}),
            "<image>###</image>\n<image>###</image>\nMoves?");
  EXPECT_EQ(spelled(sample_of("<video>Moves?", {}, {{.frames = {"wide.png"}}}), {.video_max_slices = 2}),
            "<image>###</image><slice>###</slice><slice>###</slice>\nMoves?");
}

TEST_F(RowsTest, AnAnswerEndsWhereATextDoes) {
  const auto end = processor_->tokenizer().id_of("<|endoftext|>");
  ASSERT_TRUE(end);
  const auto stops = processor_->stop_tokens();
  EXPECT_NE(std::ranges::find(stops, *end), stops.end());
}

TEST_F(RowsTest, APersonMayAskForFewerSlices) {
  for (const MediaOptions& one : {MediaOptions{.max_tiles = 1}, MediaOptions{.max_slices = 1}}) {
    EXPECT_EQ(spelled(sample_of("<image>What?", {"wide.png"}), one), "<image_id>0</image_id><image>###</image>\nWhat?");
  }
}

TEST_F(RowsTest, WhatIsTypedNeverPassesForAPicture) {
  EXPECT_EQ(spelled(sample_of("<image>Is <unk> known?", {"small.jpg"})),
            "<image_id>0</image_id><image>###</image>\nIs <unk> known?");
  EXPECT_NE(refused(sample_of("What is <image>?", {})).find("<image>"), std::string::npos);
  EXPECT_NE(refused(sample_of("<slice><unk></slice>", {})).find("\"<slice>\""), std::string::npos);
  EXPECT_NE(refused(sample_of("(<image>./</image>)", {"small.jpg"})).find("\"</image>\""), std::string::npos);
}

TEST(MiniCpmFolders, AreToldApartByTheirVersion) {
  Json config = odd_config("minicpm_v_2_6");
  EXPECT_EQ(family_of(HfConfig(config, "c")).name, "minicpm_v_2_6");
  config["version"] = "2.6";
  EXPECT_EQ(refusal_of_config(config), "");
  for (const Json& version : {Json(4.5), Json(4.0), Json(2.5), Json("new"), Json(Json::object())}) {
    config["version"] = version;
    EXPECT_NE(refusal_of_config(config).find("expected \"version\" 2.6"), std::string::npos) << version;
  }
  config.erase("version");
  EXPECT_NE(refusal_of_config(config).find("no \"version\""), std::string::npos);
  config["version"] = 2.6;
  config["architectures"] = {"MiniCPMO"};
  EXPECT_NE(refusal_of_config(config).find("MiniCPM-o"), std::string::npos) << "the model_type would be V's";
}

TEST(MiniCpmFolders, WhatChangesTheMathematicsIsRefusedByItsKey) {
  const std::vector<std::pair<std::string, Json>> root{
      {"insert_layer_id", 6}, {"scale_emb", 12}, {"hidden_size", 64}, {"query_num", 0}};
  for (const auto& [key, value] : root) {
    Json config = odd_config("minicpm_v_2_6");
    config[key] = value;
    EXPECT_NE(refusal_of_config(config).find(key), std::string::npos) << key << ": " << refusal_of_config(config);
  }
  const std::vector<std::pair<std::string, Json>> vision{{"model_type", "idefics3"}, {"num_attention_heads", 5},
                                                         {"patch_size", 0},          {"num_channels", 1},
                                                         {"hidden_size", 0},         {"num_hidden_layers", 1000000000}};
  for (const auto& [key, value] : vision) {
    Json config = odd_config("minicpm_v_2_6");
    config["vision_config"][key] = value;
    const std::string said = refusal_of_config(config);
    EXPECT_NE(said.find("vision_config"), std::string::npos) << key << ": " << said;
  }
}

TEST(MiniCpmFolders, ADroppedLayerMayStandInTheFileAllTheSame) {
  const HfConfig config(odd_config("minicpm_v_2_6"), "config.json");
  ASSERT_TRUE(config.flag("drop_vision_last_layer", false));
  const Model model = family_of(config).build(config);
  EXPECT_EQ(model.unused.size(), 16U);
  EXPECT_TRUE(
      std::ranges::all_of(model.unused, [](const auto& s) { return s.key.starts_with("vpm.encoder.layers.2."); }));
  const Weights weights = Weights::open(folder() / "checkpoint");
  EXPECT_TRUE(unmatched(model, weights, KeyMap::match(model, weights)).extra.empty());
}

TEST(MiniCpmTypicalRow, HasSlicesWhereThereIsRoom) {
  const HfConfig config(odd_config("minicpm_v_2_6"), "config.json");  // three tokens a slice
  EXPECT_TRUE(minicpm::typical_row(config, 3).media.empty());
  EXPECT_EQ(minicpm::typical_row(config, 7).media.size(), 2U);
  const Features row = minicpm::typical_row(config, 100);
  EXPECT_EQ(row.media.size(), 10U);
  EXPECT_EQ(count_places(row.media), 30);
  EXPECT_EQ(std::ranges::count(row.labels, -100), 30);
}

}  // namespace
}  // namespace lockstep
