// InternVL as its authors publish it: what of config.json is refused by key, and what their chat format writes.
#include "lockstep/zoo/internvl.h"

#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/data/sample.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/straight_run.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path folder() { return odd_folder("internvl") / "checkpoint_opengvlab"; }

std::string refusal(const std::string& pointer, const Json& value) {
  Json config = read_json(folder() / "config.json");
  config[Json::json_pointer(pointer)] = value;
  return refusal_of_config(config);
}

TEST(InternvlConfig, WhatWouldChangeTheNumbersIsRefusedByKey) {
  EXPECT_EQ(refusal("/ps_version", "v1").find("config.json: ps_version: expected v2 (v1 transposes pictures), found"),
            0U);
  const std::pair<const char*, Json> cases[] = {{"/pad2square", true},
                                                {"/use_llm_lora", 16},
                                                {"/use_backbone_lora", 16},
                                                {"/use_backbone_lora", true},
                                                {"/force_image_size", 48},
                                                {"/downsample_ratio", 0.3},
                                                {"/select_layer", -9},
                                                {"/llm_config/architectures", {"Phi3ForCausalLM"}},
                                                {"/vision_config/model_type", "clip"},
                                                {"/vision_config/norm_type", "batch_norm"},
                                                {"/vision_config/num_attention_heads", 5}};
  for (const auto& [pointer, value] : cases) {
    const std::string text = refusal(pointer, value);
    EXPECT_NE(text.find("expected"), std::string::npos) << pointer << ": " << text;
  }
  EXPECT_EQ(refusal("/max_dynamic_patch", 6), "");
  EXPECT_EQ(refusal("/use_llm_lora", false), "");
  EXPECT_NE(refusal("/use_llm_lora", true).find("use_llm_lora: expected 0 or false (merge the adapter"),
            std::string::npos);
}

TEST(InternvlConfig, ItsNamesAreTheAuthors) {
  const InternvlConfig config = read_internvl_config(HfConfig::load(folder()));
  ASSERT_EQ(config.dialects.size(), 1U);
  const auto name = [&](const char* ours) { return stored_part(config.dialects[0], ours).name; };
  EXPECT_EQ(name("vision_tower.encoder.layer.2.attention.k_proj.weight"),
            "vision_model.encoder.layers.2.attn.qkv.weight");
  EXPECT_EQ(name("vision_tower.encoder.layer.2.attention.q_norm.weight"),
            "vision_model.encoder.layers.2.attn.q_norm.weight");
  EXPECT_EQ(name("vision_tower.encoder.layer.2.mlp.fc1.bias"), "vision_model.encoder.layers.2.mlp.fc1.bias");
  EXPECT_EQ(name("vision_tower.embeddings.cls_token"), "vision_model.embeddings.class_embedding");
  EXPECT_EQ(name("multi_modal_projector.linear_2.bias"), "mlp1.3.bias");
  EXPECT_EQ(module_name(config.dialects[0], "vision_tower.encoder.layer.2"), "vision_model.encoder.layers.2");
  EXPECT_EQ(module_name(config.dialects[0], "multi_modal_projector"), "mlp1");
}

/// A copy of the folder with another `template`, without weights.
class InternvlChat : public testing::Test {
 protected:
  std::string prompt(const std::string& format, const Json& messages, const std::string& conversation = "") {
    const fs::path dir = fs::path(testing::TempDir()) / "internvl_chat";
    fs::remove_all(dir);
    fs::create_directories(dir);
    for (const auto& file : fs::directory_iterator(folder())) {
      if (file.path().extension() == ".json" || file.path().extension() == ".txt")
        fs::copy_file(file.path(), dir / file.path().filename());
    }
    Json config = read_json(dir / "config.json");
    config["template"] = format;
    fs::remove(dir / "config.json");
    write_json(dir / "config.json", config);
    if (!conversation.empty()) write_text(dir / "conversation.py", conversation);
    const auto processor = load_internvl_processor(dir);
    const Sample sample = sample_from_row({{"messages", messages}}, "row", dir);
    return processor->tokenizer().decode(processor->prompt_features(sample, {}).input_ids);
  }
};

TEST_F(InternvlChat, TheFormatThatTheConfigNamesGoesBeforeTheTokenizers) {
  const Json asked = {{{"role", "user"}, {"content", "Hi"}}};
  const std::string modern = "书生·万象，英文名是InternVL";
  EXPECT_NE(prompt("internvl2_5", asked).find(modern), std::string::npos);
  EXPECT_TRUE(
      prompt("internvl2_5", asked)
          .ends_with(
              "联合开发的多模态大语言模型。<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_TRUE(
      prompt("internlm2-chat", asked)
          .ends_with("一个有用无害的人工智能助手。<|im_end|><|im_start|>user\nHi<|im_end|><|im_start|>assistant\n"));
  const Json told = {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "Hi"}}};
  EXPECT_EQ(prompt("internvl2_5", told),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const std::string said = refusal_of([&] { (void)prompt("phi3-chat", asked); });
  EXPECT_NE(said.find("template: expected one of internvl2_5, internlm2-chat, Hermes-2, found"), std::string::npos)
      << said;
}

/// InternVL-Chat-V1-5 and InternVL2 have other messages under one name.
TEST_F(InternvlChat, TheFoldersConversationSaysWhatTheSystemSays) {
  const Json asked = {{{"role", "user"}, {"content", "Hi"}}};
  const std::string own =
      "register_conv_template(Conversation(name='internlm2-chat', system_message='It\\'s InternLM (书生·浦语).'))";
  EXPECT_EQ(
      prompt("internlm2-chat", asked, own),
      "<|im_start|>system\nIt's InternLM (书生·浦语).<|im_end|><|im_start|>user\nHi<|im_end|><|im_start|>assistant\n");
  EXPECT_EQ(prompt("Hermes-2", asked, own), prompt("Hermes-2", asked));
}

/// model.chat: "<image>\n" before a question that has no mark; one that has keeps it as it is.
/// Source: OpenGVLab/InternVL modeling_internvl_chat.py chat.
TEST(InternvlPictures, ThatNoTextMarksStandOnLinesOfTheirOwn) {
  const auto rows = load_internvl_processor(ModelPlace(folder()));
  const fs::path media = fs::path(LOCKSTEP_FIXTURES) / "images";
  const std::vector<fs::path> pictures{media / "rgb.png", media / "grey.png"};
  const auto ids = [&](const Json& content, size_t images = 2) {
    Json row{{"messages", Json::array({{{"role", "user"}, {"content", content}}})}, {"images", Json::array()}};
    for (size_t i = 0; i < images; ++i) row["images"].push_back(pictures[i].string());
    return rows->prompt_features(sample_from_row(row, "row", {media}), {}).input_ids;
  };
  const Json image{{"type", "image"}}, question{{"type", "text"}, {"text", "Which?"}};
  const auto on_lines = ids("<image>\n<image>\nWhich?");
  EXPECT_EQ(ids("Which?"), on_lines);
  EXPECT_EQ(ids(Json::array({image, image, question})), on_lines);
  EXPECT_EQ(ids("<image>Which?"), ids("<image>\n<image>Which?"));  // the second is marked
  EXPECT_NE(ids("<image><image>Which?"), on_lines);
  EXPECT_EQ(ids(Json::array({question, image}), 1), ids("Which?<image>", 1));
}

TEST(InternvlTiles, OfAnotherSizeAreWholeTokensAndReadAllTheSame) {
  const fs::path dir = odd_folder("internvl") / "checkpoint";  // 24 pixels, eight a token
  const auto processor = load_internvl_processor(dir);
  Sample sample{.messages = {{.role = "user", .content = "<image>What?"}}};
  sample.images = {(odd_folder("internvl") / "media" / "square.jpg").string()};
  const auto row_of = [&](int64_t size) {
    return processor->prompt_features(sample, {.media = {.tile_size = size, .max_tiles = 1}});
  };
  EXPECT_EQ(row_of(0).media.at(0).places.size(), 9U);
  EXPECT_EQ(row_of(24).media.at(0).values, row_of(0).media.at(0).values);
  EXPECT_EQ(row_of(40).media.at(0).places.size(), 25U);
  const std::string said = refusal_of([&] { (void)row_of(30); }, ExitCode::kUsage);
  EXPECT_NE(said.find("INPUT_SIZE=30: expected a multiple of 8"), std::string::npos) << said;
  EXPECT_NE(said.find("INPUT_SIZE=32"), std::string::npos) << said;

  const HfConfig config = HfConfig::load(dir);
  const Model model = family_of(config).build(config);
  const Weights weights = Weights::open(dir);
  const KeyMap keys = KeyMap::match(model, weights);
  const StraightRun run(model, weights, keys, Dtype::kF32);
  EXPECT_EQ(run.greedy({row_of(40)}, 2).sizes(), at::IntArrayRef({1, 2}));
}

}  // namespace
}  // namespace lockstep
