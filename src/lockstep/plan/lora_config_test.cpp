// What peft 0.21.2 makes of an adapter_config.json: which modules it chooses was recorded by asking it (LoraConfig,
// check_target_module_exists, get_pattern_key).
#include "lockstep/plan/lora_config.h"

#include <cmath>
#include <iostream>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

LoraConfig config_of(const std::string& text) { return LoraConfig::from_json(parse_json(text, "test"), "test"); }

struct Choice {
  const char* config;
  std::vector<std::string> chosen, left;
};

void expect_choices(const std::vector<Choice>& choices) {
  for (const auto& choice : choices) {
    const LoraConfig config = config_of(choice.config);
    for (const auto& name : choice.chosen) EXPECT_TRUE(config.targets_module(name)) << choice.config << " " << name;
    for (const auto& name : choice.left) EXPECT_FALSE(config.targets_module(name)) << choice.config << " " << name;
  }
}

TEST(LoraConfig, AListOfTargetsNamesWholeNamesOrWhatStandsBehindADot) {
  expect_choices({{R"({"target_modules": ["q_proj"]})",
                   {"q_proj", "model.layers.0.self_attn.q_proj"},
                   {"model.layers.0.self_attn.my_q_proj", "model.q_proj.inner"}},
                  {R"({"target_modules": ["self_attn.q_proj"]})", {"m.0.self_attn.q_proj"}, {"m.0.cross_attn.q_proj"}},
                  {R"({"target_modules": ["model.layers.0.fc"]})",
                   {"model.layers.0.fc", "x.model.layers.0.fc"},
                   {"model.layers.1.fc", "modelXlayers.0.fc"}},
                  {R"({"target_modules": null})", {}, {"q_proj"}}});
}

TEST(LoraConfig, AStringOfTargetsIsAnExpressionForTheWholeName) {
  expect_choices({{R"({"target_modules": "q_proj"})", {"q_proj"}, {"model.q_proj", "q_projx"}},
                  {R"({"target_modules": ".*\\.(q|v)_proj"})", {"a.q_proj", "a.b.v_proj"}, {"q_proj", "a.q_proj.x"}},
                  {R"({"target_modules": "a|b"})", {"a", "b"}, {"ab", "xa"}},
                  {R"({"target_modules": "^(model(?=\\.).*\\.(q_proj))$"})", {"model.1.q_proj"}, {"model.1.k_proj"}}});
}

TEST(LoraConfig, WhatIsExcludedOrTrainedWholeTakesNoAdapter) {
  expect_choices(
      {{R"({"target_modules": ["q_proj", "v_proj"], "exclude_modules": ["0.self_attn.q_proj"]})",
        {"m.1.self_attn.q_proj", "m.0.self_attn.v_proj"},
        {"m.0.self_attn.q_proj"}},
       {R"({"target_modules": ["q_proj"], "exclude_modules": ".*\\.0\\..*"})", {"m.1.q_proj"}, {"m.0.q_proj"}},
       {R"({"target_modules": ["q_proj", "fc"], "modules_to_save": ["fc"]})",
        {"m.myfc.q_proj", "m.q_proj", "m.fcc.q_proj"},
        {"fc", "m.fc", "m.fc.q_proj", "fc.q_proj"}}});
}

TEST(LoraConfig, LayersAreTheFirstNumberOfAName) {
  expect_choices(
      {{R"({"target_modules": ["q_proj"], "layers_to_transform": [1]})",
        {"model.layers.1.q_proj", "visual.blocks.1.q_proj", "model.layers.1.experts.0.q_proj"},
        {"model.layers.0.q_proj", "layers.1.q_proj", "model.layers.0.experts.1.q_proj", "model.q_proj"}},
       {R"({"target_modules": ["q_proj"], "layers_to_transform": 1})", {"m.layers.1.q_proj"}, {"m.l.2.q_proj"}},
       {R"({"target_modules": ["q_proj"], "layers_to_transform": []})", {"model.layers.3.q_proj"}, {}},
       {R"({"target_modules": ["1"], "layers_to_transform": [1]})", {}, {"model.layers.1"}},
       {R"({"target_modules": ["model.layers.0.q_proj", "lm_head"], "layers_to_transform": [1]})",
        {"model.layers.0.q_proj", "lm_head"},
        {}}});
}

TEST(LoraConfig, APatternSaysWhichListOfLayersIsMeant) {
  const char* two = R"({"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": ["h", "layers"]})";
  const char* dotted =
      R"({"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "model.layers"})";
  expect_choices({{R"({"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"})",
                   {"layers.1.q_proj", "model.layers.1.q_proj"},
                   {"visual.blocks.1.q_proj", "model.mylayers.1.q_proj"}},
                  {two,
                   {"model.layers.1.q_proj", "m.h.1.q_proj", "m.layers.0.h.1.q_proj"},
                   {"m.h.0.layers.1.q_proj", "m.layers.1.h.0.q_proj"}},
                  {dotted, {"model.layers.1.q_proj", "a.model.layers.1.q_proj"}, {"visual.layers.1.q_proj"}}});
}

TEST(LoraConfig, PatternsGiveModulesRanksAndAlphasOfTheirOwn) {
  const LoraConfig config = config_of(R"({"r": 8, "lora_alpha": 16, "rank_pattern": {
      "q_proj": 2, "layers\\.\\d+\\.v_proj": 3, "^model.layers.1.o_proj": 4, "^layers.1.k_proj": 5},
      "alpha_pattern": {"q_proj": 6}})");
  EXPECT_EQ(config.rank_of("q_proj"), 2);
  EXPECT_EQ(config.rank_of("m.0.q_proj"), 2);
  EXPECT_EQ(config.rank_of("m.0.my_q_proj"), 8);
  EXPECT_EQ(config.rank_of("m.q_proj.x"), 8);
  EXPECT_EQ(config.rank_of("m.layers.12.v_proj"), 3);
  EXPECT_EQ(config.rank_of("m.layers.x.v_proj"), 8);
  EXPECT_EQ(config.rank_of("model.layers.1.o_proj"), 4);
  EXPECT_EQ(config.rank_of("x.model.layers.1.o_proj"), 8);
  EXPECT_EQ(config.rank_of("model.layers.1.k_proj"), 8) << "the beginning of the name is the beginning";
  EXPECT_DOUBLE_EQ(config.scale_of("m.q_proj"), 3.0);
  EXPECT_DOUBLE_EQ(config.scale_of("m.layers.1.v_proj"), 16.0 / 3);
  EXPECT_DOUBLE_EQ(config.scale_of("m.k_proj"), 2.0);
  LoraConfig rooted = config;
  rooted.rslora = true;
  EXPECT_DOUBLE_EQ(rooted.scale_of("m.layers.1.v_proj"), 16.0 / std::sqrt(3.0));
}

TEST(LoraConfig, AnAlphaOfNothingIsAScaleOfNothing) {
  EXPECT_EQ(config_of(R"({"alpha_pattern": {"q_proj": 0}})").scale_of("m.q_proj"), 0.0);
}

TEST(LoraConfig, ModulesToSaveAreEndingsWithoutADot) {
  const LoraConfig config = config_of(R"({"modules_to_save": ["norm", "lm_head"]})");
  for (const char* name : {"model.norm", "model.layers.0.input_layernorm", "norm", "lm_head"})
    EXPECT_TRUE(config.saves(name + std::string(".weight"))) << name;
  EXPECT_TRUE(config.saves("model.norm.x.weight")) << "what is inside";
  for (const char* name : {"model.norms.weight", "lm_heads.weight", "norm"}) EXPECT_FALSE(config.saves(name)) << name;
}

/// Every key that peft 0.21.2 writes, most of them not as they are by default.
const char* const kWhole = R"({"alora_invocation_tokens": null, "alpha_pattern": {"q_proj": 3.5}, "arrow_config": null,
 "auto_mapping": null, "base_model_name_or_path": "there", "bias": "lora_only", "corda_config": null,
 "ensure_weight_tying": false, "eva_config": null, "exclude_modules": ["1.q_proj"], "fan_in_fan_out": false,
 "inference_mode": true, "init_lora_weights": "gaussian", "kasa_config": null, "layer_replication": null,
 "layers_pattern": ["layers"], "layers_to_transform": [0, 2], "loftq_config": {}, "lora_alpha": 24, "lora_bias": true,
 "lora_dropout": 0.125, "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
 "modules_to_save": ["norm"], "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2",
 "qalora_group_size": 16, "r": 12, "rank_pattern": {"v_proj": 5}, "revision": "main",
 "target_modules": ["q_proj", "v_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
 "trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false, "use_rslora": true,
 "velora_config": null})";

TEST(LoraConfig, WhatPeftWritesIsWrittenAgainKeyByKey) {
  const Json whole = parse_json(kWhole, "test");
  EXPECT_EQ(whole.size(), 41u);
  const Json again = LoraConfig::from_json(whole, "test").to_json();
  EXPECT_EQ(again, whole) << again.dump(1);
  LoraConfig other = config_of(R"({"target_modules": "all-linear", "exclude_modules": ".*x", "lora_alpha": 8.5,
                                   "init_lora_weights": false, "layers_to_transform": 3, "layers_pattern": "h"})");
  const Json json = other.to_json();
  EXPECT_EQ(json.at("target_modules"), "all-linear");
  EXPECT_EQ(json.at("exclude_modules"), ".*x");
  EXPECT_EQ(json.at("lora_alpha"), 8.5);
  EXPECT_EQ(json.at("init_lora_weights"), false);
  EXPECT_EQ(json.at("layers_to_transform"), Json::array({3}));
  EXPECT_EQ(json.size(), 41u);
  EXPECT_EQ(LoraConfig::from_json(json, "test").to_json(), json);
}

TEST(LoraConfig, AnOldFileWithoutNewerKeysIsRead) {
  const LoraConfig config = config_of(R"({"peft_type": "LORA", "target_modules": ["c_attn"], "lora_alpha": 32})");
  EXPECT_EQ(config.r, 8);
  EXPECT_EQ(config.alpha, 32);
  EXPECT_EQ(config.dropout, 0);
  EXPECT_EQ(config_of("{}").alpha, 8) << "as peft, where nothing is said";
  EXPECT_EQ(config_of(R"({"a_key_of_2027": {"x": 1}})").r, 8);
}

void expect_refusal(const std::string& text, const std::vector<std::string>& words) {
  try {
    config_of(text);
    ADD_FAILURE() << text << " was taken";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << text;
    for (const auto& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(LoraConfig, RefusesWhatItDoesNotComputeByItsKeyAndNamesACure) {
  const std::string cure = "merge_and_unload";
  expect_refusal(R"({"peft_type": "LOHA"})", {"peft_type", "LORA", "LOHA", cure});
  for (const char* type : {"PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "ADAPTION_PROMPT", "CPT"}) {
    expect_refusal(std::string(R"({"peft_type": ")") + type + "\"}", {type, "cannot be merged either"});
  }
  expect_refusal(R"({"peft_type": "LN_TUNING"})", {cure});
  const std::vector<std::pair<const char*, const char*>> unbuilt{{"use_qalora", "true"},
                                                                 {"alora_invocation_tokens", "[1, 2]"},
                                                                 {"layer_replication", "[[0, 2]]"},
                                                                 {"target_parameters", "[\"w\"]"},
                                                                 {"trainable_token_indices", "{\"embed\": [1]}"},
                                                                 {"use_bdlora", "{\"nblocks\": 2}"},
                                                                 {"megatron_config", "{\"a\": 1}"},
                                                                 {"arrow_config", "{\"a\": 1}"},
                                                                 {"kasa_config", "{\"a\": 1}"},
                                                                 {"velora_config", "{\"a\": 1}"},
                                                                 {"monteclora_config", "{\"a\": 1}"}};
  for (const auto& [key, value] : unbuilt) {
    expect_refusal(std::string("{\"") + key + "\": " + value + "}", {"test", key, cure});
    for (const char* idle : {"null", "false", "[]", "{}"}) {
      EXPECT_NO_THROW(config_of(std::string("{\"") + key + "\": " + idle + "}")) << key << " " << idle;
    }
  }
}

TEST(LoraConfig, TakesWhatChangesNothingOfLinearMatrices) {
  const LoraConfig config = config_of(R"({"fan_in_fan_out": true, "init_lora_weights": "mica"})");
  EXPECT_EQ(config.to_json().at("fan_in_fan_out"), false) << "as peft says it of nn.Linear";
  EXPECT_EQ(config.init, "mica");
  EXPECT_FALSE(config.changes_base());
}

TEST(LoraConfig, RefusesNumbersAndWordsOutOfRange) {
  for (const auto& [text, word] :
       std::vector<std::pair<const char*, const char*>>{{R"({"r": 0})", "\"r\""},
                                                        {R"({"r": -8})", "\"r\""},
                                                        {R"({"r": 65537})", "\"r\""},
                                                        {R"({"r": 8.5})", "\"r\""},
                                                        {R"({"r": "8"})", "\"r\""},
                                                        {R"({"lora_alpha": 0})", "lora_alpha"},
                                                        {R"({"lora_alpha": -1})", "lora_alpha"},
                                                        {R"({"lora_dropout": 1})", "lora_dropout"},
                                                        {R"({"lora_dropout": -0.1})", "lora_dropout"},
                                                        {R"({"bias": "some"})", "bias"},
                                                        {R"({"use_dora": "yes"})", "use_dora"},
                                                        {R"({"target_modules": 3})", "target_modules"},
                                                        {R"({"target_modules": ["a", 3]})", "target_modules"},
                                                        {R"({"layers_to_transform": ["a"]})", "layers_to_transform"},
                                                        {R"({"rank_pattern": {"q": 0}})", "q"},
                                                        {R"({"rank_pattern": {"q": 2.5}})", "q"},
                                                        {R"({"rank_pattern": {"q": 70000}})", "q"},
                                                        {R"({"rank_pattern": ["q"]})", "rank_pattern"},
                                                        {R"({"alpha_pattern": {"q": "x"}})", "q"},
                                                        {R"({"alpha_pattern": {"q": -1}})", "from 0"},
                                                        {R"({"alpha_pattern": {"[": 2}})", "alpha_pattern"},
                                                        {R"({"rank_pattern": {"(": 2}})", "rank_pattern"},
                                                        {R"({"modules_to_save": {"a": 1}})", "modules_to_save"}}) {
    expect_refusal(text, {word});
  }
  expect_refusal("[]", {"object"});
}

TEST(LoraConfig, AnExpressionThatRunsAwayOrDoesNotCompileEndsWithAnError) {
  const std::string long_name(60, 'x');
  for (const char* text : {R"({"target_modules": "(x+x+)+[0-9]"})", R"({"target_modules": "("})",
                           R"({"target_modules": ["a"], "exclude_modules": "(x+x+)+[0-9]"})"}) {
    EXPECT_THROW((void)config_of(text).targets_module(long_name), UserError) << text;
  }
  EXPECT_THROW((void)config_of(R"({"rank_pattern": {"(x+x+)+[0-9]": 2}})").rank_of(long_name), UserError);
}

Json random_value(std::mt19937_64& random, int depth = 0) {
  static const char* const kTexts[] = {"",     "q_proj", ".*",  "(x+)+y", "all-linear", "LORA",
                                       "true", "((",     "[a-", "\\1",    "\xc3\xa9"};
  switch (random() % (depth < 2 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random()) >> (random() % 64);
    case 3:
      return std::ldexp(static_cast<double>(random() % 1000) - 500, static_cast<int>(random() % 2000) - 1000);
    case 4:
      return kTexts[random() % std::size(kTexts)];
    case 5:
      return random();
    case 6: {
      Json list = Json::array();
      for (uint64_t n = random() % 4; n > 0; --n) list.push_back(random_value(random, depth + 1));
      return list;
    }
    default: {
      Json table = Json::object();
      for (uint64_t n = random() % 4; n > 0; --n)
        table[kTexts[random() % std::size(kTexts)]] = random_value(random, depth + 1);
      return table;
    }
  }
}

/// The valid file with some values replaced, or some bytes of it.
std::string mutated(std::mt19937_64& random, const Json& valid) {
  Json json = valid;
  for (uint64_t n = random() % 4; n > 0; --n) {
    auto at = json.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % json.size()));
    if (random() % 8 == 0) {
      json.erase(at);
    } else {
      *at = random_value(random);
    }
  }
  std::string text = json.dump();
  for (uint64_t n = random() % 3; n > 0; --n) {
    const size_t at = random() % text.size();
    if (random() % 4 == 0) text.resize(at + 1);
    text[std::min(at, text.size() - 1)] = static_cast<char>(random() % 256);
  }
  return text;
}

TEST(LoraConfig, NoMutationOfAFileEndsInAnythingButAnErrorOfTheUser) {
  const Env env = Env::process();
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261123));
  const double scale = env.has("LOCKSTEP_TEST_SCALE") ? std::stod(*env.text("LOCKSTEP_TEST_SCALE")) : 1.0;
  const auto total = static_cast<int>(10000 * scale);
  std::cout << "fuzz: " << total << " mutations, seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  const Json valid = parse_json(kWhole, "test");
  int taken = 0;
  for (int i = 0; i < total; ++i) {
    const std::string text = mutated(random, valid);
    try {
      const LoraConfig config = config_of(text);
      for (const char* module :
           {"q_proj", "model.layers.1.self_attn.q_proj", "lm_head", "model.norm", "xxxxxxxxxxxxxxxxxxxx"}) {
        (void)config.targets_module(module);
        (void)config.saves(module);
        EXPECT_GE(config.rank_of(module), 1) << text;
        EXPECT_TRUE(std::isfinite(config.scale_of(module))) << text;
      }
      EXPECT_EQ(LoraConfig::from_json(config.to_json(), "again").to_json(), config.to_json()) << text;
      ++taken;
    } catch (const UserError&) {  // NOLINT(bugprone-empty-catch): what is promised
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ", mutation " << i << ": " << error.what() << " of " << text;
    }
  }
  EXPECT_GT(taken, total / 20) << "mutations that leave a file valid";
  EXPECT_LT(taken, total);
}

}  // namespace
}  // namespace lockstep
