// Which files of a checkpoint's folder count, and what they make of a conversation.
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path checkpoint(const std::string& name) { return fs::path(LOCKSTEP_FIXTURES) / "oracle" / name / "checkpoint"; }
std::string image_path() { return (fs::path(LOCKSTEP_FIXTURES) / "oracle/seed1/llava/media/a.png").string(); }

Sample asked(const std::string& role, const std::string& text, std::vector<std::string> images = {}) {
  Sample sample;
  sample.messages = {{role, text}};
  sample.images = std::move(images);
  sample.where = "rows.jsonl:1";
  return sample;
}

/// A copy of a recorded checkpoint, to be changed.
class ChangedFolder {
 public:
  ChangedFolder(const std::string& name, const std::string& to)
      : dir_(fs::path(testing::TempDir()) / ("chat_processor_" + to)) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    for (const auto& entry : fs::directory_iterator(checkpoint(name)))
      fs::create_symlink(entry.path(), dir_ / entry.path().filename());
  }
  ~ChangedFolder() { fs::remove_all(dir_); }

  void change(const std::string& file, const std::function<void(Json&)>& how) {
    Json json = fs::exists(dir_ / file) ? read_json(dir_ / file) : Json::object();
    how(json);
    fs::remove(dir_ / file);
    write_json(dir_ / file, json);
  }
  std::unique_ptr<Processor> processor() const { return family_of(HfConfig::load(dir_)).processor(dir_); }

 private:
  fs::path dir_;
};

TEST(TextProcessor, OnlyPlainTextsBeginWithTheTokenizersFirstToken) {
  ChangedFolder folder("seed1/qwen2", "begin");
  folder.change("tokenizer.json", [](Json& json) {
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<|object_ref_start|>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", Json::array()},
        {"special_tokens",
         {{"<|object_ref_start|>",
           {{"id", "<|object_ref_start|>"}, {"ids", {323}}, {"tokens", {"<|object_ref_start|>"}}}}}}};
  });
  const auto processor = folder.processor();
  const auto first = [&](const Sample& sample) {
    return processor->tokenizer().token_of(processor->prompt_features(sample, {}).input_ids.at(0));
  };
  EXPECT_EQ(first(asked("user", "Hello")), "<|im_start|>");
  EXPECT_EQ(first(asked("assistant", "Hello")), "<|object_ref_start|>");
}

TEST(ImageProcessor, WhatStandsInTheProcessorsFileCountsBeforeAnOlderOne) {
  ChangedFolder folder("seed1/llava", "newest");
  const auto mean_of = [&] {
    const auto features = folder.processor()->prompt_features(asked("user", "<image>What?", {image_path()}), {});
    const auto& values = features.media.at(0).values;
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  const double before = mean_of();
  folder.change("processor_config.json", [](Json& json) {
    json["image_processor"] = read_json(checkpoint("seed1/llava") / "preprocessor_config.json");
    json["image_processor"]["do_normalize"] = false;
  });
  const double without = mean_of();
  EXPECT_GT(std::abs(without - before), 0.05);
  EXPECT_GE(without, 0);
}

/// Written again under the names of AutoModel, which has no head.
Weights of_base_model(const std::string& name, const fs::path& to) {
  fs::remove_all(to);
  fs::create_directories(to);
  const Weights whole = Weights::open(checkpoint(name));
  std::vector<TensorSpec> specs;
  for (TensorSpec spec : whole.specs()) {
    if (!spec.name.starts_with("model.")) continue;
    spec.name = spec.name.substr(6);
    specs.push_back(spec);
  }
  SafetensorsWriter out(to, specs);
  for (const auto& spec : specs) out.write(spec.name, whole.read("model." + spec.name));
  out.finish();
  return Weights::open(to);
}

TEST(TextFamily, ReadsAModelThatWasSavedWithoutItsHead) {
  const fs::path folder = fs::path(testing::TempDir()) / "folder_files_test_base";
  const auto model_of = [](const std::string& name) {
    Json json = read_json(checkpoint(name) / "config.json");
    json["architectures"] = {"Qwen3Model"};  // as AutoModel writes it: the model_type tells
    const HfConfig config(json, "config.json");
    return family_of(config).build(config);
  };
  const Weights tied = of_base_model("seed1/qwen2", folder);
  const KeyMap keys = KeyMap::match(model_of("seed1/qwen2"), tied);
  EXPECT_EQ(keys.on_disk("model.layers.0.mlp.down_proj.weight").name, "layers.0.mlp.down_proj.weight");
  const Weights untied = of_base_model("odd/qwen3", folder);
  try {
    (void)KeyMap::match(model_of("odd/qwen3"), untied);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("lm_head.weight: expected in"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("a model without its head"), std::string::npos) << error.what();
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
