#include "lockstep/plan/adapters.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/test_adapters.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the model of these tests

using Names = std::vector<std::string>;

Names names_of(const AdapterLayout& layout) {
  Names names;
  for (const auto& one : layout.modules) names.push_back(one.module.name);
  return names;
}

/// As a step has it that holds no other adapter.
AdaptedBlock use_in(const AdapterLayout& layout, const Model& model, size_t block) {
  return layout.use_of(model, block, model.blocks[block]->params().size());
}

TEST(Adapters, EveryPartOfAFusedMatrixIsAModuleAndWhatAFileHoldsAsOneIsOne) {
  const Model model = adapted_model();
  Names names;
  for (const auto& module : modules_of(model, naming_of_adapters(model, ""))) names.push_back(module.name);
  const std::string layer = "model.language_model.layers.";
  EXPECT_EQ(names, (Names{"model.language_model.embed_tokens",
                          "model.visual.patch_embed.proj",
                          "model.visual.blocks.0.attn.qkv",
                          "model.visual.blocks.0.attn.proj",
                          "model.multi_modal_projector.linear_1",
                          layer + "0.self_attn.q_proj",
                          layer + "0.self_attn.k_proj",
                          layer + "0.self_attn.v_proj",
                          layer + "0.self_attn.o_proj",
                          layer + "0.mlp.gate_proj",
                          layer + "0.mlp.up_proj",
                          layer + "0.mlp.down_proj",
                          layer + "1.self_attn.q_proj",
                          layer + "1.self_attn.k_proj",
                          layer + "1.self_attn.v_proj",
                          layer + "1.self_attn.o_proj",
                          layer + "1.mlp.gate_proj",
                          layer + "1.mlp.up_proj",
                          layer + "1.mlp.down_proj",
                          "lm_head"}));
}

TEST(Adapters, PartsOfAFusedMatrixHaveRanksOfTheirOwnAndOthersAreLeftAlone) {
  const Model model = adapted_model();
  LoraConfig config = targets({"q_proj", "v_proj"});
  config.exclude.names = {"1.self_attn.q_proj"};
  config.rank_pattern = {{"v_proj", 3}};
  config.alpha_pattern = {{"v_proj", 9}};
  const AdapterLayout layout = chosen(model, config);
  const auto specs = layout.params_of(model, kLayer0);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].shape, (Shape{5, 4}));
  EXPECT_EQ(specs[0].sources, (std::vector<ParamSource>{{"model.layers.0.self_attn.q_proj.lora_A.weight", {2, 4}},
                                                        {"model.layers.0.self_attn.v_proj.lora_A.weight", {3, 4}}}));
  EXPECT_EQ(specs[1].shape, (Shape{8 * 2 + 4 * 3}));
  EXPECT_EQ(specs[1].sources, (std::vector<ParamSource>{{"model.layers.0.self_attn.q_proj.lora_B.weight", {8, 2}},
                                                        {"model.layers.0.self_attn.v_proj.lora_B.weight", {4, 3}}}));
  const AdaptedBlock use = use_in(layout, model, kLayer0);
  ASSERT_EQ(use.params.size(), 1u);
  const auto& adapted = use.params[0];
  const size_t own = model.blocks[kLayer0]->params().size();
  EXPECT_EQ(adapted.a, own);
  EXPECT_EQ(adapted.b, own + 1);
  EXPECT_FALSE(adapted.magnitude || adapted.bias);
  ASSERT_EQ(adapted.parts.size(), 2u);
  const auto& q = adapted.parts[0];
  const auto& v = adapted.parts[1];
  EXPECT_EQ((std::vector<int64_t>{q.first, q.count, q.rank, q.begin}), (std::vector<int64_t>{0, 8, 2, 0}));
  EXPECT_EQ((std::vector<int64_t>{v.first, v.count, v.rank, v.begin}), (std::vector<int64_t>{12, 4, 3, 16}));
  EXPECT_DOUBLE_EQ(q.scale, 4.0);
  EXPECT_DOUBLE_EQ(v.scale, 3.0);
  EXPECT_EQ(use_in(layout, model, kLayer1).params.at(0).parts.size(), 1u) << "v alone";
  EXPECT_TRUE(use_in(layout, model, kTower).params.empty());
  EXPECT_NE(adapted.key, use_in(layout, model, kLayer1).params.at(0).key) << "what is dropped differs by layer";
}

TEST(Adapters, AMatrixThatFilesHoldAsOneHasOneAOfAllItsParts) {
  const Model model = adapted_model();
  const AdapterLayout layout = chosen(model, targets({"qkv"}));
  const auto specs = layout.params_of(model, kTower);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].shape, (Shape{2, 6}));
  ASSERT_EQ(specs[0].sources.size(), 1u);
  EXPECT_EQ(specs[1].shape, (Shape{18 * 2}));
  ASSERT_EQ(specs[1].sources.size(), 3u);
  const std::string root = "base_model.model.model.visual.blocks.0.attn.qkv.";
  const StoredPart a = layout.in_file(specs[0].sources[0]), k = layout.in_file(specs[1].sources[1]);
  EXPECT_EQ(a.name, root + "lora_A.weight");
  EXPECT_TRUE(a.rows.whole());
  EXPECT_EQ(k.name, root + "lora_B.weight");
  EXPECT_EQ(k.rows, stacked(1, 3, 6));
  EXPECT_EQ(k.whole_of(specs[1].sources[1].shape), (Shape{18, 2}));
  EXPECT_EQ(use_in(layout, model, kTower).params.at(0).parts.size(), 1u);
}

TEST(Adapters, KernelsAndTablesHaveShapesAsPeftWritesThem) {
  const Model model = adapted_model();
  LoraConfig config = targets({"patch_embed.proj", "embed_tokens", "linear_1"});
  config.dora = true;
  config.dropout = 0.5;
  const AdapterLayout layout = chosen(model, config);
  const auto kernel = layout.params_of(model, kPatches), table = layout.params_of(model, kEmbedding);
  ASSERT_EQ(kernel.size(), 3u);
  EXPECT_EQ(kernel[0].sources[0].shape, (Shape{2, 3, 2, 2}));
  EXPECT_EQ(kernel[1].sources[0].shape, (Shape{6, 2, 1, 1}));
  EXPECT_EQ(kernel[2].shape, (Shape{6}));
  EXPECT_EQ(kernel[2].sources[0].shape, (Shape{1, 6, 1, 1}));
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0].sources, (std::vector<ParamSource>{{"model.embed_tokens.lora_embedding_A", {2, 11}}}));
  EXPECT_EQ(table[1].sources, (std::vector<ParamSource>{{"model.embed_tokens.lora_embedding_B", {4, 2}}}));
  EXPECT_EQ(table[2].shape, (Shape{4})) << "a magnitude of each hidden unit";
  EXPECT_EQ(layout.in_file(table[0].sources[0]).name,
            "base_model.model.model.language_model.embed_tokens.lora_embedding_A");
  EXPECT_EQ(use_in(layout, model, kEmbedding).params.at(0).dropout, 0) << "ids cannot be dropped";
  EXPECT_EQ(use_in(layout, model, kProjector).params.at(0).dropout, 0.5);
}

TEST(Adapters, AllLinearLeavesHeadTablesAndKernelsOut) {
  const Model model = adapted_model();
  const Names names = names_of(chosen(model, targets({"all-linear"})));
  EXPECT_EQ(names.size(), 17u);
  for (const char* out : {"lm_head", "model.language_model.embed_tokens", "model.visual.patch_embed.proj"}) {
    EXPECT_EQ(std::ranges::count(names, out), 0) << out;
  }
  const Names text = names_of(chosen(model, targets({"all-linear"}), {.components = {Component::kLlm}}));
  EXPECT_EQ(text.size(), 14u);
  const Names both = names_of(chosen(model, targets({"all-linear", "lm_head", "all-embedding"})));
  EXPECT_EQ(both.size(), 19u) << "a head that is named is taken";
}

TEST(Adapters, WholeComponentsTakeNoAdaptersAndAreSavedBeside) {
  const Model model = adapted_model();
  const AdapterLayout layout =
      chosen(model, targets({"all-linear"}), {.components = {Component::kLlm}, .whole = {Component::kProjector}});
  EXPECT_EQ(layout.saved,
            (std::set<std::string>{"multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_1.bias"}));
  EXPECT_EQ(layout.whole, (std::set<Component>{Component::kProjector}));
}

TEST(Adapters, ANameThatMatchesNothingIsAnsweredWithTheNearest) {
  const Model model = adapted_model();
  const auto refused = [&](const LoraConfig& config, const Names& words) {
    try {
      chosen(model, config);
      ADD_FAILURE() << "it was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      for (const auto& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused(targets({"q_proj", "v_porj"}), {"--target_modules v_porj", "did you mean v_proj?", "o_proj"});
  LoraConfig regex = targets({});
  regex.targets.regex = ".*nothing";
  refused(regex, {"--target_regex .*nothing", "fake", "modules are called"});
  LoraConfig saved = targets({"q_proj"});
  saved.modules_to_save = {"multi_modal_projectr"};
  refused(saved, {"--modules_to_save multi_modal_projectr", "did you mean multi_modal_projector?"});
}

TEST(Adapters, WhatIsNotBuiltIsRefusedByTheNameOfTheModule) {
  const Model model = adapted_model();
  const auto with = [](Names names, bool dora, bool bias) {
    LoraConfig config = targets(std::move(names));
    config.dora = dora, config.lora_bias = bias;
    return config;
  };
  for (const auto& config : {with({"lm_head"}, true, false), with({"lm_head"}, false, true),
                             with({"q_proj"}, true, true), with({"embed_tokens"}, false, true)}) {
    EXPECT_THROW(chosen(model, config), UserError);
  }
  EXPECT_NO_THROW(chosen(model, with({"lm_head", "embed_tokens"}, false, false)));
  EXPECT_NO_THROW(chosen(model, with({"embed_tokens"}, true, false)));
}

TEST(AdaptedPlan, ABlockHasUnitsOfWhatStaysOfWhatIsTrainedWholeAndOfAdapters) {
  LoraConfig config = targets({"q_proj"});
  config.modules_to_save = {"input_layernorm"};
  const Plan plan = planned(adapted_model(), config, {.world = 2, .compute = Dtype::kBF16});
  const Unit* base = find_unit(plan, "model.layers.0");
  const Unit* whole = find_unit(plan, "model.layers.0 whole");
  const Unit* adapter = find_unit(plan, "model.layers.0 adapter");
  ASSERT_TRUE(base && whole && adapter);
  EXPECT_FALSE(base->trainable);
  EXPECT_TRUE(whole->trainable && adapter->trainable);
  EXPECT_EQ(whole->dtype, Dtype::kBF16);
  EXPECT_EQ(adapter->dtype, Dtype::kF32) << "adapters learn in float32 whatever the model is computed in";
  EXPECT_TRUE(base->optimizer.empty());
  EXPECT_EQ(adapter->used_numel(), 2 * 4 + 8 * 2);
  EXPECT_EQ(plan.num_trainable(), 2 * (24 + 4));
  EXPECT_EQ(find_unit(plan, "visual.blocks.0 adapter"), nullptr);
  EXPECT_EQ(plan.steps[kLayer0].units.size(), 3u);
  EXPECT_EQ(plan.steps[kLayer0].params.size(), 8u) << "six of its own, A and B";
  const Plan answering = planned(adapted_model(), config, {.compute = Dtype::kBF16, .training = false});
  EXPECT_EQ(find_unit(answering, "model.layers.0 adapter")->dtype, Dtype::kBF16);
}

TEST(AdaptedPlan, OnlyWhatStandsBehindAnAdapterNeedsGradients) {
  const Plan plan = planned(adapted_model(), targets({"v_proj"}));
  for (const size_t step : {kEmbedding, kPatches, kTower, kProjector}) EXPECT_FALSE(plan.steps[step].backward) << step;
  EXPECT_TRUE(plan.steps[kLayer0].backward);
  EXPECT_TRUE(plan.steps[kLayer0].grad_inputs.empty());
  EXPECT_EQ(plan.steps[kLayer1].grad_inputs, (Names{"hidden"}));
  EXPECT_TRUE(plan.steps[kHead].backward);
}

TEST(AdaptedPlan, StateIsOfAdaptersAlone) {
  const Plan full = make_plan(adapted_model(), {.compute = Dtype::kBF16});
  const Plan plan = planned(adapted_model(), targets({"q_proj"}), {.compute = Dtype::kBF16});
  const Unit* adapter = find_unit(plan, "model.layers.0 adapter");
  const StateBytes bytes = plan.state_bytes(), all = full.state_bytes();
  EXPECT_EQ(bytes.master, 0) << "adapters are float32 themselves";
  EXPECT_EQ(bytes.optimizer, 2 * adapter->padded * 8);
  EXPECT_EQ(bytes.gradients, 2 * adapter->padded * 4);
  EXPECT_EQ(bytes.params, all.params + 2 * adapter->padded * 4);
}

TEST(AdaptedPlan, AnAdapterOfATiedHeadOrItsTableUntiesNothing) {
  const Model model = adapted_model(/*tied=*/true);
  for (const char* target : {"lm_head", "embed_tokens"}) {
    const AdapterLayout layout = chosen(model, targets({target}));
    EXPECT_FALSE(layout.unties) << target;
    const Plan plan = planned(model, targets({target}));
    EXPECT_EQ(find_unit(plan, "model.embed_tokens")->uses, 2) << target;
  }
  const auto head = chosen(model, targets({"lm_head"})).params_of(model, kHead);
  ASSERT_EQ(head.size(), 2u);
  EXPECT_EQ(head[0].sources, (std::vector<ParamSource>{{"lm_head.lora_A.weight", {2, 4}}}));
  EXPECT_EQ(head[1].sources, (std::vector<ParamSource>{{"lm_head.lora_B.weight", {11, 2}}}));
  EXPECT_TRUE(use_in(chosen(model, targets({"lm_head"})), model, kEmbedding).params.empty());
  EXPECT_TRUE(use_in(chosen(model, targets({"embed_tokens"})), model, kHead).params.empty());
}

TEST(AdaptedPlan, ATiedWeightOfWhichOneUseIsTrainedWholeIsTwo) {
  const Model model = adapted_model(/*tied=*/true);
  const auto saved = [](Names names) {
    LoraConfig config = targets({"q_proj"});
    config.modules_to_save = std::move(names);
    return config;
  };
  struct Case {
    Names names;
    bool embedding, head;
  };
  for (const auto& c : {Case{{"embed_tokens"}, true, false}, Case{{"lm_head"}, false, true},
                        Case{{"embed_tokens", "lm_head"}, true, true}}) {
    SCOPED_TRACE(c.names.front() + std::to_string(c.names.size()));
    EXPECT_TRUE(chosen(model, saved(c.names)).unties);
    const Plan plan = planned(model, saved(c.names));
    const Unit* embedding = find_unit(plan, c.embedding ? "model.embed_tokens whole" : "model.embed_tokens");
    const Unit* head = find_unit(plan, c.head ? "lm_head whole" : "lm_head");
    ASSERT_TRUE(embedding && head);
    EXPECT_EQ(embedding->trainable, c.embedding);
    EXPECT_EQ(head->trainable, c.head);
    EXPECT_EQ(embedding->uses, 1);
    EXPECT_EQ(plan.num_params(), make_plan(adapted_model(false), {}).num_params() + 2 * (8 + 16))
        << "both have weights of their own";
    const auto own = [](const Unit& unit, const std::string& key) {
      return std::ranges::any_of(unit.params, [&](const auto& placed) { return placed.spec.sources[0].key == key; });
    };
    EXPECT_TRUE(own(*embedding, "model.embed_tokens.weight"));
    EXPECT_TRUE(own(*head, "lm_head.weight"));
  }
}

TEST(AdaptedPlan, OfAFusedBiasThePartsOfAdaptedModulesLearn) {
  LoraConfig config = targets({"q_proj"});
  config.bias = "lora_only";
  const Model model = adapted_model();
  EXPECT_EQ(chosen(model, config).saved,
            (std::set<std::string>{"model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.q_proj.bias"}));
  const Plan plan = planned(model, config);
  const Unit* whole = find_unit(plan, "model.layers.0 whole");
  ASSERT_NE(whole, nullptr);
  ASSERT_EQ(whole->params.size(), 1u);
  const auto& sources = whole->params[0].spec.sources;
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_TRUE(sources[0].learns);
  EXPECT_FALSE(sources[1].learns || sources[2].learns);
  EXPECT_FALSE(whole->params[0].decays);
  const Plan alike = planned(model, config, {.decays_all = true});
  EXPECT_TRUE(find_unit(alike, "model.layers.0 whole")->params[0].decays);
  const AdapterLayout layout = chosen(model, config);
  EXPECT_EQ(layout.in_file(sources[0]).name,
            "base_model.model.model.language_model.layers.0.self_attn.q_proj.base_layer.bias");
}

TEST(AdaptedPlan, AllBiasesAreThoseOfTowersToo) {
  LoraConfig config = targets({"q_proj"});
  config.bias = "all";
  const AdapterLayout layout = chosen(adapted_model(), config);
  EXPECT_EQ(layout.saved.size(), 3u + 1 + 2 * 3);
  EXPECT_TRUE(layout.saved.contains("visual.blocks.0.attn.k_proj.bias"));
  EXPECT_TRUE(layout.saved.contains("multi_modal_projector.linear_1.bias"));
  EXPECT_EQ(layout.in_file({"model.layers.0.self_attn.k_proj.bias", {4}}).name,
            "base_model.model.model.language_model.layers.0.self_attn.k_proj.bias");
}

TEST(Adapters, AllEmbeddingIsEveryTable) {
  LoraConfig config = targets({"q_proj"});
  config.modules_to_save = {"all-embedding"};
  EXPECT_EQ(chosen(adapted_model(), config).saved, (std::set<std::string>{"model.embed_tokens.weight"}));
}

TEST(AdaptedPlan, PartOfAFusedMatrixCannotBeTrainedWhole) {
  LoraConfig config = targets({"o_proj"});
  config.modules_to_save = {"k_proj"};
  try {
    planned(adapted_model(), config);
    FAIL() << "it was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("k_proj.weight is computed as one matrix with others, 2 of which"),
              std::string::npos)
        << error.what();
  }
  config.modules_to_save = {"q_proj", "k_proj", "v_proj"};
  EXPECT_NO_THROW(planned(adapted_model(), config));
}

TEST(AdaptedPlan, LoraPlusGivesBAndMagnitudesARateOfTheirOwn) {
  const Model model = adapted_model();
  LoraConfig config = targets({"o_proj"});
  config.dora = true;
  AdapterLayout layout = chosen(model, config);
  layout.loraplus_ratio = 16;
  const Plan plan = make_plan(model, {.adapters = std::make_shared<const AdapterLayout>(layout)});
  const Unit* unit = find_unit(plan, "model.layers.0 adapter");
  ASSERT_NE(unit, nullptr);
  for (const auto& placed : unit->params) {
    EXPECT_EQ(placed.spec.rate, placed.spec.local.ends_with(" A") ? 1 : 16) << placed.spec.local;
    EXPECT_TRUE(placed.decays) << placed.spec.local << " decays for the HF Trainer";
  }
  EXPECT_EQ(unit->updates, (std::vector<UpdateRange>{{0, 64, true, 1}, {64, unit->padded, true, 16}}));
}

// Source: peft's create_loraplus_optimizer: a table's two matrices alone have its rate.
TEST(AdaptedPlan, LoraPlusGivesAMagnitudeOfATableTheRateOfB) {
  LoraConfig config = targets({"embed_tokens"});
  config.dora = true;
  const Model model = adapted_model();
  AdapterLayout layout = chosen(model, config);
  layout.loraplus_ratio = 16;
  layout.table_rate = 0.5;
  std::vector<double> rates;
  for (const auto& spec : layout.params_of(model, kEmbedding)) rates.push_back(spec.rate);
  EXPECT_EQ(rates, (std::vector<double>{0.5, 0.5, 16}));
}

TEST(Adapters, NamesMeanWhatIsFrozenOnlyWhereThatIsWished) {
  const Model model = adapted_model();
  AdapterChoice choice{.config = targets({"q_proj", "attn.proj"}), .components = {Component::kLlm}};
  const auto components = [&] {
    std::set<Component> found;
    for (const auto& one : choose_adapters(model, naming_of_adapters(model, ""), choice).modules) {
      found.insert(model.blocks[one.module.block]->component());
    }
    return found;
  };
  EXPECT_TRUE(components().contains(Component::kVision)) << "as for peft";
  choice.adapt_frozen = false;
  EXPECT_EQ(components(), std::set<Component>{Component::kLlm});
  choice.components = {Component::kProjector};
  EXPECT_THROW(components(), UserError) << "it has none";
}

TEST(AdaptedPlan, ItsHashTellsAdaptersApart) {
  const Model model = adapted_model();
  const auto hash = [&](const LoraConfig& config) { return planned(model, config).hash(); };
  LoraConfig other = targets({"q_proj"}), dora = other, wider = other, scaled = other, drops = other;
  dora.dora = true, wider.r = 3, scaled.alpha = 9, drops.dropout = 0.1;
  const uint64_t first = hash(other);
  EXPECT_EQ(hash(targets({"q_proj"})), first);
  for (const auto& config : {dora, wider, scaled, drops, targets({"k_proj"})}) EXPECT_NE(hash(config), first);
}

TEST(AdaptedPlan, IsPrintedWithoutTiesThatAreNone) {
  const Model model = adapted_model();
  EXPECT_EQ(planned(model, targets({"q_proj"})).print(model).find("tied"), std::string::npos);
  const Model tied = adapted_model(/*tied=*/true);
  EXPECT_NE(planned(tied, targets({"q_proj"})).print(tied).find("shares a tied weight"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
