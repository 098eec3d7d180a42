// Families by name and by config, the configs they refuse, and the fresh models they make.
#include "lockstep/zoo/registry.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep {
namespace {

HfConfig config_of(const Json& json) { return {json, "config.json"}; }

Json small_llama() {
  return {{"model_type", "llama"},        {"vocab_size", 32},       {"hidden_size", 16},
          {"intermediate_size", 24},      {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"max_position_embeddings", 64}};
}

std::string refusal_of(const Json& json) {
  try {
    read_text_config(config_of(json), "llama");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

int64_t num_params(const Model& model) {
  int64_t total = 0;
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) total += param.tied ? 0 : param.numel();
  }
  return total;
}

TEST(Registry, FindsAFamilyByArchitectureModelTypeAndName) {
  EXPECT_EQ(family_of(config_of({{"architectures", {"Qwen2ForCausalLM"}}})).name, "qwen2");
  EXPECT_EQ(family_of(config_of({{"model_type", "llava"}})).name, "llava");
  EXPECT_EQ(family_of(config_of({{"architectures", {"LlavaLlamaForCausalLM"}}, {"model_type", "llava"}})).name,
            "llava");
  EXPECT_EQ(family_named("llama").name, "llama");
}

TEST(Registry, KnowsWhoseOwnCodeAnswersFromEmbeddings) {
  const std::vector<std::pair<const char*, bool>> odd = {
      {"omnilmm", true}, {"minicpm_v_2_6", true}, {"minicpm_o_2_6", true}, {"qwen2_5_omni", false},
      {"llava", false},  {"internvl", false},     {"qwen2_5_vl", false},   {"qwen2", false}};
  for (const auto& [name, embeds] : odd) {
    const auto dir = std::filesystem::path(LOCKSTEP_FIXTURES) / "oracle" / "odd" / name / "checkpoint";
    const HfConfig config = HfConfig::load(dir);
    EXPECT_EQ(family_of(config).build(config).answers_from_embeddings, embeds) << name;
  }
}

TEST(Registry, ListsTheFamiliesWhenOneIsUnknown) {
  try {
    family_of(config_of({{"architectures", {"MambaForCausalLM"}}, {"model_type", "mamba"}}));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("qwen2, llama, llava"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("MambaForCausalLM"), std::string::npos) << e.what();
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
  }
  try {
    family_named("lava");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean llava?"), std::string::npos) << e.what();
    EXPECT_EQ(e.code(), ExitCode::kUsage);
  }
}

TEST(Registry, ModelsThatPassForOthersAreRefusedByName) {
  for (const auto& [architecture, type, said] :
       std::vector<std::array<std::string, 3>>{{"LlavaQwenForCausalLM", "llava", "llava-hf"},
                                               {"LlavaMptForCausalLM", "llava", "LLaVA over MPT"},
                                               {"MiniCPMO", "minicpmo", "MiniCPM-o 2.6"}}) {
    try {
      family_of(config_of({{"architectures", {architecture}}, {"model_type", type}}));
      FAIL() << architecture;
    } catch (const UserError& e) {
      EXPECT_NE((std::string(e.what()) + e.hint()).find(said), std::string::npos) << e.what();
      EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    }
  }
}

TEST(TextConfig, TakesTheDefaultsOfItsModelType) {
  const TextConfig llama = read_text_config(config_of(Json::object()), "llama");
  EXPECT_EQ(llama.mlp, 11008);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_FALSE(llama.qkv_bias);
  const TextConfig mistral = read_text_config(config_of({{"model_type", "mistral"}}), "llama");
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.mlp, 14336);
  EXPECT_EQ(mistral.window(0), 4096);
  EXPECT_EQ(llama.window(0), 0);
  const TextConfig qwen3 = read_text_config(config_of({{"model_type", "qwen3"}}), "llama");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.window(31), 0);
  const TextConfig qwen2 = read_text_config(config_of({{"model_type", "qwen2"}}), "llama");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_EQ(qwen2.vocab, 151936);
}

TEST(TextConfig, NullKvHeadsMeansAsManyAsHeads) {
  const TextConfig text = read_text_config(
      config_of({{"model_type", "qwen2"}, {"num_attention_heads", 16}, {"num_key_value_heads", nullptr}}), "");
  EXPECT_EQ(text.kv_heads, 16);
}

std::vector<int64_t> windows_of(const Json& json) { return read_text_config(config_of(json), "llama").windows; }

TEST(TextConfig, ReadsWindowsAsItsModelTypeDoes) {
  Json qwen2 = small_llama();
  qwen2["model_type"] = "qwen2";
  qwen2["num_key_value_heads"] = 2;
  qwen2["sliding_window"] = 32;
  qwen2["max_window_layers"] = 1;
  EXPECT_EQ(windows_of(qwen2), std::vector<int64_t>{});
  qwen2["use_sliding_window"] = true;
  EXPECT_EQ(windows_of(qwen2), (std::vector<int64_t>{0, 32}));
  qwen2["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(windows_of(qwen2), (std::vector<int64_t>{32, 0}));
  qwen2.erase("layer_types");
  qwen2["max_window_layers"] = 2;
  EXPECT_EQ(windows_of(qwen2), std::vector<int64_t>{});
  qwen2["max_window_layers"] = 0;
  qwen2["sliding_window"] = nullptr;
  EXPECT_EQ(windows_of(qwen2), std::vector<int64_t>{});
  Json mistral = small_llama();
  mistral["model_type"] = "mistral";
  mistral["num_key_value_heads"] = 2;
  EXPECT_EQ(windows_of(mistral), (std::vector<int64_t>{4096, 4096}));
  mistral["sliding_window"] = 32;
  EXPECT_EQ(windows_of(mistral), (std::vector<int64_t>{32, 32}));
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(windows_of(mistral), std::vector<int64_t>{});
}

TEST(TextConfig, RefusesWindowsThatContradictEachOther) {
  Json json = small_llama();
  json["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(refusal_of(json), "");
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_NE(refusal_of(json).find("layer_types: expected all full_attention"), std::string::npos) << refusal_of(json);
  json["model_type"] = "mistral";
  json["num_key_value_heads"] = 2;
  EXPECT_NE(refusal_of(json).find("layer_types: expected all sliding_attention"), std::string::npos);
  json["model_type"] = "qwen3";
  EXPECT_NE(refusal_of(json).find("there is no window"), std::string::npos) << refusal_of(json);
  json["use_sliding_window"] = true;
  EXPECT_EQ(refusal_of(json), "");
  json["layer_types"] = {"sliding_attention"};
  EXPECT_NE(refusal_of(json).find("num_hidden_layers 2, found 1"), std::string::npos) << refusal_of(json);
  json["layer_types"] = {"chunked_attention", "full_attention"};
  EXPECT_NE(refusal_of(json).find("found \"chunked_attention\""), std::string::npos) << refusal_of(json);
  json.erase("layer_types");
  json["sliding_window"] = 0;
  EXPECT_NE(refusal_of(json).find("sliding_window"), std::string::npos);
}

TEST(TextConfig, RefusesWhatItCannotComputeByName) {
  Json json = small_llama();
  json["rope_scaling"] = {{"type", "longrope"}, {"factor", 4.0}};
  EXPECT_NE(refusal_of(json).find("found \"longrope\""), std::string::npos) << refusal_of(json);
  json["rope_scaling"] = nullptr;
  EXPECT_EQ(refusal_of(json), "");
  json["partial_rotary_factor"] = 0.5;
  EXPECT_NE(refusal_of(json).find("partial_rotary_factor"), std::string::npos);
  json.erase("partial_rotary_factor");
  json["num_key_value_heads"] = 3;
  EXPECT_NE(refusal_of(json).find("num_key_value_heads 3, found 4"), std::string::npos) << refusal_of(json);
  json["model_type"] = "gemma";
  EXPECT_NE(refusal_of(json).find("found \"gemma\""), std::string::npos);
}

TEST(Rope, ReadsOldAndNewSpellings) {
  Json old_json = small_llama(), new_json = small_llama();
  old_json["rope_theta"] = 100.0;
  old_json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  new_json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 100.0}};
  const auto a = read_rope_config(config_of(old_json), 4, 64).inverse_frequencies;
  EXPECT_EQ(a, read_rope_config(config_of(new_json), 4, 64).inverse_frequencies);
  ASSERT_EQ(a.size(), 2U);
  EXPECT_FLOAT_EQ(a[0], 0.5F);
  EXPECT_FLOAT_EQ(a[1], 0.05F);
}

TEST(Rope, OfTwoSpellingsTheOldOneCounts) {
  Json json = small_llama(), expected = small_llama();
  expected["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 100.0}};
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"rope_theta", 100.0}};
  const auto frequencies = [](const Json& one) { return read_rope_config(config_of(one), 4, 64).inverse_frequencies; };
  EXPECT_EQ(frequencies(json), frequencies(expected)) << "theta within it";
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7.0}};
  EXPECT_EQ(frequencies(json), frequencies(expected));
  json["rope_scaling"].erase("rope_theta");
  json.erase("rope_theta");
  EXPECT_NE(refusal_of(json).find("rope_scaling: expected rope_theta within it"), std::string::npos)
      << refusal_of(json);
  json = small_llama();
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
  EXPECT_NE(refusal_of(json).find("\"full_attention\": expected one rope for all layers"), std::string::npos);
}

TEST(TextConfig, TokensThatSeeThoseBehindThemAreRefused) {
  Json json = small_llama();
  json["is_causal"] = true;
  EXPECT_EQ(refusal_of(json), "");
  json["is_causal"] = false;
  EXPECT_NE(refusal_of(json).find("is_causal: expected true, found false"), std::string::npos);
}

/// Wave lengths 2 pi, 20 pi and 200 pi against limits 64/4 = 16 and 64/1 = 64.
TEST(Rope, StretchesLowFrequenciesAsLlama3Does) {
  Json json = small_llama();
  json["rope_theta"] = 1000.0;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}};
  const auto made = read_rope_config(config_of(json), 6, 4096).inverse_frequencies;
  EXPECT_FLOAT_EQ(made[0], 1.0F);
  const double length = 20.0 * M_PI, smooth = (64.0 / length - 1.0) / 3.0;
  EXPECT_NEAR(made[1], (1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1, 1e-8);
  EXPECT_FLOAT_EQ(made[2], 0.01F / 8.0F);
}

/// Pairs 0 to 3 turn 10000^(-i/4) a token. Of 64 first positions, pair 4 ln(64 / (32 * 2 pi)) / ln(10000) < 0 turns 32
/// times and pair 1.008 once, up to 2: the ramp goes from 0 to 2.
TEST(Rope, StretchesWhatTurnsSeldomAsYarnDoes) {
  Json json = small_llama();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const RopeConfig made = read_rope_config(config_of(json), 8, 256);
  EXPECT_NEAR(made.scaling, 0.1 * std::log(4.0) + 1.0, 1e-12);
  ASSERT_EQ(made.inverse_frequencies.size(), 4U);
  EXPECT_FLOAT_EQ(made.inverse_frequencies[0], 1.0F);
  EXPECT_FLOAT_EQ(made.inverse_frequencies[1], 0.1F * (0.5F / 4.0F + 0.5F));
  EXPECT_FLOAT_EQ(made.inverse_frequencies[2], 0.01F / 4.0F);
  EXPECT_FLOAT_EQ(made.inverse_frequencies[3], 0.001F / 4.0F);
  json["rope_scaling"]["mscale"] = 0.5;
  json["rope_scaling"]["mscale_all_dim"] = 2.0;
  EXPECT_NEAR(read_rope_config(config_of(json), 8, 256).scaling,
              (0.05 * std::log(4.0) + 1.0) / (0.2 * std::log(4.0) + 1.0), 1e-12);
  json["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(read_rope_config(config_of(json), 8, 256).scaling, 1.5);
  json["rope_scaling"].erase("attention_factor");
  json["rope_scaling"]["mscale_all_dim"] = -10.0 / std::log(4.0);
  EXPECT_NE(refusal_of(json).find("expected a scaling above 0"), std::string::npos) << refusal_of(json);
  json["rope_theta"] = 1.0;
  EXPECT_NE(refusal_of(json).find("rope_theta: expected more than 1"), std::string::npos) << refusal_of(json);
}

// 64 positions in config.json.
TEST(Rope, AStretchedModelIsMadeForAllPositionsThatItIsStretchedTo) {
  const auto positions = [](const char* type, double factor, int64_t first) {
    Json json = small_llama();
    json["rope_scaling"] = {{"rope_type", type}, {"factor", factor}};
    if (first > 0) json["rope_scaling"]["original_max_position_embeddings"] = first;
    return read_text_config(config_of(json), "llama").max_positions;
  };
  EXPECT_EQ(positions("yarn", 4, 64), 256);
  EXPECT_EQ(positions("yarn", 4, 32), 128);
  EXPECT_EQ(positions("yarn", 4, 16), 64);
  EXPECT_EQ(positions("yarn", 4, 0), 256) << "as transformers has it";
  EXPECT_EQ(positions("linear", 2.5, 0), 160);
  EXPECT_EQ(positions("llama3", 8, 32), 64);
  EXPECT_EQ(positions("dynamic", 2, 0), 64);
  EXPECT_EQ(positions("default", 2, 0), 64);
}

/// Up to the model's positions; what would come behind is refused where rows are asked for (data/position_limit.h).
TEST(Rope, TurnsAsDefaultWhereDynamicDoesNotGrowYet) {
  Json json = small_llama();
  const RopeConfig usual = read_rope_config(config_of(json), 8, 64);
  json["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  const RopeConfig made = read_rope_config(config_of(json), 8, 64);
  EXPECT_EQ(made.inverse_frequencies, usual.inverse_frequencies);
  EXPECT_TRUE(made.grows);
  EXPECT_FALSE(usual.grows);
  json["num_key_value_heads"] = 4;
  const Json whole = [&] {
    Json all = json;
    all["architectures"] = {"LlamaForCausalLM"};
    return all;
  }();
  EXPECT_TRUE(family_named("llama").build(config_of(whole)).dims.positions_end);
  json["rope_scaling"]["mrope_section"] = {1, 1};
  EXPECT_NE(refusal_of(json).find("mrope_section"), std::string::npos) << refusal_of(json);
}

TEST(Llava, BuildsTheTowerUpToTheStateThatIsLookedAt) {
  const auto build = [](const Json& layer) {
    auto files = family_named("llava").fresh_files("tiny", 128);
    Json config = files[0].second;
    config["image_token_index"] = 5;
    config["vision_feature_layer"] = layer;
    config["vision_config"]["num_hidden_layers"] = 4;
    return family_named("llava").build(config_of(config));
  };
  const auto tower_layers = [](const Model& model) {
    return std::count_if(model.blocks.begin(), model.blocks.end(),
                         [](const auto& b) { return b->name().find("encoder.layers") != std::string::npos; });
  };
  EXPECT_EQ(tower_layers(build(-2)), 3);
  EXPECT_EQ(tower_layers(build(-1)), 4);
  EXPECT_EQ(tower_layers(build(0)), 0);
  EXPECT_EQ(tower_layers(build(1)), 1);
  EXPECT_EQ(build(-1).unused.size(), 2U);        // the norm behind the tower
  EXPECT_EQ(build(-2).unused.size(), 2U + 16U);  // and one layer
  const Model several = build(Json::array({-2, 1}));
  EXPECT_EQ(tower_layers(several), 3);
  for (const auto& block : several.blocks) {
    if (block->name() != "multi_modal_projector") continue;
    EXPECT_EQ(block->reads(), (std::vector<std::string>{"vision_state_3", "vision_state_1"}));
    EXPECT_EQ(block->params()[0].shape, (Shape{128, 128}));
  }
  EXPECT_THROW(build(-6), UserError);
}

TEST(FreshModels, HaveTheSizesThatTheDocsName) {
  const auto size_of = [](const std::string& family, const std::string& size, int64_t vocab) {
    Json config = family_named(family).fresh_files(size, vocab)[0].second;
    if (config.contains("image_token_index")) config["image_token_index"] = 4;  // a token's name until there are tokens
    return num_params(family_named(family).build(config_of(config)));
  };
  EXPECT_EQ(size_of("qwen2", "small", 16384), 31474560);
  EXPECT_LT(size_of("qwen2", "tiny", 512), 1'500'000);
  EXPECT_LT(size_of("llava", "tiny", 512), 1'500'000);
  EXPECT_LT(size_of("llava", "demo", 512), 3'000'000);
  EXPECT_GT(size_of("llava", "demo", 512), 1'500'000);
  EXPECT_TRUE(family_named("qwen2").fresh_files("huge", 512).empty());
}

TEST(FreshModels, TemplatesRenderTurns) {
  const Json chat = {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "What?"}}, {{"type", "image"}}}}},
                     {{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", "A fox."}}}}}};
  const RenderOptions tokens{.bos_token = "<s>", .eos_token = "</s>"};
  EXPECT_EQ(ChatTemplate(vicuna_template()).render(chat, tokens), "USER: <image>\nWhat? ASSISTANT: A fox.</s>");
  const Json plain = {{{"role", "user"}, {"content", "What?"}}};
  const RenderOptions ask{.add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"};
  EXPECT_EQ(ChatTemplate(vicuna_template()).render(plain, ask), "USER: What? ASSISTANT:");
  EXPECT_EQ(ChatTemplate(chatml_template()).render(plain, ask),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhat?<|im_end|>\n"
            "<|im_start|>assistant\n");
  const Json turns = {{{"role", "system"}, {"content", "Short."}},
                      {{"role", "user"}, {"content", "What?"}},
                      {{"role", "assistant"}, {"content", "A fox."}},
                      {{"role", "user"}, {"content", "Sure?"}}};
  EXPECT_EQ(ChatTemplate(mistral_template()).render(turns, ask),
            "<s>[INST] Short.\n\nWhat? [/INST] A fox.</s>[INST] Sure? [/INST]");
  EXPECT_EQ(ChatTemplate(llama3_template()).render(plain, ask),
            "<s><|start_header_id|>user<|end_header_id|>\n\nWhat?<|eot_id|><|start_header_id|>assistant<|end_header_id|"
            ">\n\n");
}

}  // namespace
}  // namespace lockstep
