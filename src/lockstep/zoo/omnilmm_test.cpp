// How OmniLMM's rows are written, what its folders must hold, and the places of queries and patches.
#include "lockstep/zoo/omnilmm.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/fresh_checkpoint.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path folder() { return odd_folder("omnilmm"); }

std::unique_ptr<Processor> processor() { return omnilmm::load_processor(folder() / "checkpoint"); }

Sample sample_of(const std::string& question, size_t pictures, const std::string& answer = "") {
  Sample sample;
  sample.messages = {{.role = "user", .content = question}};
  if (!answer.empty()) sample.messages.push_back({.role = "assistant", .content = answer});
  for (size_t i = 0; i < pictures; ++i) sample.images.push_back((folder() / "media" / "a.png").string());
  sample.where = "rows.jsonl:7";
  return sample;
}

TEST(OmniLmmTest, WhatAConfigMayNotSayIsRefusedByName) {
  EXPECT_EQ(refusal_of_config(odd_config("omnilmm")), "");
  const std::vector<std::pair<std::string, Json>> wrong{{"mm_use_im_start_end", false},
                                                        {"num_query", 5},
                                                        {"num_query", 0},
                                                        {"num_query", int64_t{1} << 40},
                                                        {"image_size", 21},
                                                        {"image_size", int64_t{1} << 40},
                                                        {"hidden_size", 64},
                                                        {"hidden_size", 258},
                                                        {"mm_vision_tower", "vit_so400m"}};
  for (const auto& [key, value] : wrong) {
    Json config = odd_config("omnilmm");
    config[key] = value;
    EXPECT_NE(refusal_of_config(config).find(key), std::string::npos) << key << " " << value.dump();
  }
  for (const char* key : {"patch_size", "image_size", "num_hidden_layers", "hidden_size"}) {
    Json config = odd_config("omnilmm");
    config["vision_config"][key] = 0;
    EXPECT_NE(refusal_of_config(config).find(key), std::string::npos) << key;
  }
}

TEST(OmniLmmTest, PublishedFilesHoldEveryTensorAndThePlacesAreCarried) {
  const HfConfig config = HfConfig::load(folder() / "checkpoint");
  const Model model = family_of(config).build(config);
  EXPECT_EQ(model.family, "omnilmm");
  const Weights weights = Weights::open(folder() / "checkpoint");
  const KeyMap keys = KeyMap::match(model, weights);
  EXPECT_EQ(unmatched(model, weights, keys).carried, std::vector<std::string>{omnilmm::kStoredPlaces});
}

TEST(OmniLmmTest, LabelsAreTheAnswerAndItsEnd) {
  const auto rows = processor();
  const Features row = rows->train_features(sample_of("<image>\nWhat?", 1, "Yes."), {});
  std::vector<int32_t> trained;
  for (const int32_t label : row.labels) {
    if (label != -100) trained.push_back(label);
  }
  EXPECT_TRUE(rows->tokenizer().decode(trained).ends_with("Yes.</s>"));
  EXPECT_EQ(row.labels.back(), row.input_ids.back());
  ASSERT_EQ(row.media.size(), 1U);
  EXPECT_EQ(row.media[0].places.size(), 4U);  // num_query
  EXPECT_EQ(row.media[0].shape, (Shape{1, 3, 20, 20}));
}

TEST(OmniLmmTest, AnAnswerStandsBehindItsQuestionAsItDoesInTheWholeText) {
  Sample talk = sample_of("<image>\nWhat?", 1, "A lamp.");
  talk.messages.push_back({.role = "user", .content = "Sure?"});
  talk.messages.push_back({.role = "assistant", .content = "Yes."});
  const auto rows = processor();
  const auto prompt = rows->prompt_features(talk, {}).input_ids, whole = rows->train_features(talk, {}).input_ids;
  ASSERT_GT(whole.size(), prompt.size());
  EXPECT_EQ(std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<int64_t>(prompt.size())), prompt);
}

TEST(OmniLmmTest, AConversationWithoutSystemMessageHasTheOneThatTheModelLearntWith) {
  const auto rows = processor();
  Sample own = sample_of("Hello", 0);
  own.messages.insert(own.messages.begin(), {.role = "system", .content = "Be brief."});
  const auto text = [&](const Sample& sample) {
    return rows->tokenizer().decode(rows->prompt_features(sample, {}).input_ids);
  };
  EXPECT_NE(text(sample_of("Hello", 0)).find("You are an artificial intelligence assistant"), std::string::npos);
  EXPECT_EQ(text(own).find("artificial"), std::string::npos);
  EXPECT_NE(text(own).find("Be brief."), std::string::npos);
}

TEST(OmniLmmTest, APictureThatARowPutsNowhereStandsOnALineOfItsOwn) {
  const auto rows = processor();
  const auto ids = [&](const std::string& text, size_t in_front = 0) {
    Sample sample = sample_of(text, 1);
    sample.messages.at(0).media_in_front = in_front;
    return rows->prompt_features(sample, {}).input_ids;
  };
  EXPECT_EQ(ids("<image>What?", 1), ids("<image>\nWhat?"));
  EXPECT_NE(ids("<image>What?"), ids("<image>\nWhat?"));  // where a row marks it, it stays as it is written
  EXPECT_NE(ids("<image> What?", 1), ids("<image>\nWhat?"));
}

TEST(OmniLmmTest, TwoPicturesAndWordsOfPicturesAreRefusedByRow) {
  for (const auto& [sample, said] : std::vector<std::pair<Sample, std::string>>{
           {sample_of("<image><image>?", 2), "at most one picture"}, {sample_of("<im_patch>?", 0), "<im_patch>"}}) {
    const std::string refused =
        refusal_of([&row = sample] { (void)processor()->prompt_features(row, {}); }, ExitCode::kData);
    EXPECT_NE(refused.find(said), std::string::npos) << refused;
    EXPECT_NE(refused.find("rows.jsonl:7"), std::string::npos) << refused;
  }
}

TEST(OmniLmmTest, PlacesOtherThanComputedAreRefused) {
  const fs::path copy = fs::path(testing::TempDir()) / "omnilmm_places";
  fs::remove_all(copy);
  fs::copy(folder() / "checkpoint", copy);
  Json config = read_json(copy / "config.json");
  config["num_query"] = 9;  // the files hold places of 4
  std::ofstream(copy / "config.json") << config.dump();
  const std::string said = refusal_of([&] { (void)omnilmm::load_processor(copy); });
  EXPECT_NE(said.find(omnilmm::kStoredPlaces), std::string::npos) << said;
  fs::remove_all(copy);
}

TEST(OmniLmmTest, AFreshFolderTakesItsRows) {
  const fs::path fresh = fs::path(testing::TempDir()) / "omnilmm_fresh";
  fs::remove_all(fresh);
  (void)init_checkpoint({.family = "omnilmm", .size = "tiny", .output_dir = fresh, .seed = 7});
  const HfConfig config = HfConfig::load(fresh);
  const Model model = family_of(config).build(config);
  (void)KeyMap::match(model, Weights::open(fresh));
  const Features row = omnilmm::load_processor(fresh)->train_features(sample_of("<image>\nWhat?", 1, "Yes."), {});
  EXPECT_EQ(row.media.at(0).places.size(), 4U);
  fs::remove_all(fresh);
}

}  // namespace
}  // namespace lockstep
