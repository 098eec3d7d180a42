#include "lockstep/plan/plan.h"

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/test_block.h"

namespace lockstep {
namespace {

/// embed -> tower -> projector -> merge -> layer -> tied head.
Model small_model() {
  using enum Component;
  Model model{.family = "fake"};
  add_fake(model, "embed", kLlm, Modality::kText, {"input_ids"}, {"hidden"}).with("weight", {10, 4});
  add_fake(model, "tower", kVision, Modality::kImage, {"pixel_values"}, {"media"})
      .with("weight", {6, 6})
      .with("bias", {6});
  add_fake(model, "projector", kProjector, Modality::kImage, {"media"}, {"media"}).with("weight", {4, 6});
  add_fake(model, "merge", kProjector, Modality::kImage, {"hidden", "media", "pixel_index"}, {"hidden"});
  add_fake(model, "layer", kLlm, Modality::kText, {"hidden"}, {"hidden"}).with("norm", {4}).with("weight", {4, 4});
  add_fake(model, "head", kLlm, Modality::kText, {"hidden", "labels"}, {"loss", "correct"})
      .with("norm", {4})
      .with_key("weight", "embed.weight", {10, 4}, true)
      .keeps();
  return model;
}

const Unit& unit_named(const Plan& plan, const std::string& name) {
  for (const auto& unit : plan.units) {
    if (unit.name == name) return unit;
  }
  throw std::out_of_range(name);
}

TEST(Plan, PutsMatricesFirstAndBeginsEachParameterAtACacheLine) {
  const Model model = small_model();
  const Plan plan = make_plan(model, {.world = 3});
  const Unit& layer = unit_named(plan, "layer");
  ASSERT_EQ(layer.params.size(), 2u);
  EXPECT_EQ(layer.params[0].spec.local, "weight");
  EXPECT_EQ(layer.params[0].offset, 0);
  EXPECT_EQ(layer.params[1].spec.local, "norm");
  EXPECT_EQ(layer.params[1].offset, 64);
  EXPECT_EQ(layer.updates.front(), (UpdateRange{0, 64, true, 1}));
  EXPECT_EQ(layer.numel, 128);
  EXPECT_EQ(layer.padded, 192) << "a multiple of 3 ranks times 64";
  EXPECT_EQ(layer.shard, 64);
  EXPECT_EQ(layer.used_numel(), 20);
}

TEST(Plan, KeepsWhatTheLastBlocksOfEachDeviceMade) {
  Model model = small_model();
  for (const char* name : {"layer.1", "layer.2", "layer.3"}) {
    model.blocks.pop_back();
    add_fake(model, name, Component::kLlm, Modality::kText, {"hidden"}, {"hidden"}).with("weight", {4, 4});
    add_fake(model, "head", Component::kLlm, Modality::kText, {"hidden", "labels"}, {"loss"})
        .with("weight", {4, 4})
        .keeps();
  }
  const auto recomputed = [&](int kept, std::vector<int> devices = {}) {
    PlanOptions options{.kept_blocks = kept};
    if (!devices.empty()) options.placement = {.num_devices = 2, .device_of_block = std::move(devices)};
    std::string out;
    for (const Step& step : make_plan(model, options).steps) out += step.recompute ? 'r' : '.';
    return out;
  };
  EXPECT_EQ(make_plan(model, {}).num_recomputed(), 8);
  EXPECT_EQ(recomputed(0), "rrrrrrrr.");  // the head never runs again
  EXPECT_EQ(recomputed(2), "rrrrrr...");
  EXPECT_EQ(recomputed(9), ".........");
  EXPECT_EQ(recomputed(1, {0, 0, 0, 0, 1, 1, 1, 1, 1}), "rrr.rrr..");
  EXPECT_EQ(make_plan(model, {.recompute = false, .recompute_vision = false}).num_recomputed(), 0);
  EXPECT_NE(make_plan(model, {.kept_blocks = 1}).hash(), make_plan(model, {}).hash()) << "ranks compare it";
}

TEST(Plan, GivesATiedWeightOneUnitWithTwoUses) {
  const Model model = small_model();
  const Plan plan = make_plan(model, {});
  EXPECT_EQ(unit_named(plan, "embed").uses, 2);
  const Step& head = plan.steps.back();
  ASSERT_EQ(head.params.size(), 2u);
  EXPECT_EQ(plan.units[static_cast<size_t>(head.params[1].unit)].name, "embed");
  EXPECT_EQ(plan.num_params(), 40 + 42 + 24 + 20 + 4) << "the tied weight counts once";
}

TEST(Plan, EverythingTrainedNeedsEveryGradient) {
  const Plan plan = make_plan(small_model(), {});
  for (const auto& step : plan.steps) EXPECT_TRUE(step.backward) << step.block;
  EXPECT_EQ(plan.steps[3].grad_inputs, (std::vector<std::string>{"hidden", "media"}));
  EXPECT_TRUE(plan.steps[4].recompute);
  EXPECT_FALSE(plan.steps[5].recompute) << "the head never recomputes";
}

TEST(Plan, AFrozenTowerHasNoBackward) {
  const Plan plan = make_plan(small_model(), {.frozen = {Component::kVision}});
  EXPECT_FALSE(plan.steps[1].backward);
  EXPECT_TRUE(plan.steps[2].backward);
  EXPECT_TRUE(plan.steps[2].grad_inputs.empty()) << "media comes from a frozen tower";
  EXPECT_EQ(plan.num_trainable(), plan.num_params() - 42);
}

TEST(Plan, ATrainedProjectorBelowAFrozenLlmStillNeedsGradientsThroughIt) {
  const Plan plan = make_plan(small_model(), {.frozen = {Component::kVision, Component::kLlm}});
  EXPECT_FALSE(plan.steps[0].backward) << "embedding: frozen, and reads no gradient";
  EXPECT_TRUE(plan.steps[4].backward) << "a frozen layer passes the gradient on";
  EXPECT_EQ(plan.steps[3].grad_inputs, (std::vector<std::string>{"media"}));
}

TEST(Plan, AFrozenPrefixFreezesBlocksAndPartsOfThem) {
  const Plan plan = make_plan(small_model(), {.freeze = {.prefixes = {"layer."}}});
  EXPECT_FALSE(unit_named(plan, "layer").trainable);
  EXPECT_TRUE(plan.steps[4].backward);
  const Plan part = make_plan(small_model(), {.freeze = {.prefixes = {"layer.norm"}}});
  EXPECT_FALSE(unit_named(part, "layer").trainable);
  EXPECT_TRUE(unit_named(part, "layer trained").trainable);
}

TEST(Plan, AFreezePrefixThatMatchesNothingOffersTheNearestName) {
  try {
    make_plan(small_model(), {.freeze = {.prefixes = {"projectr"}}});
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    EXPECT_NE(e.hint().find("projector"), std::string::npos) << e.what();
  }
}

TEST(Plan, NothingLeftToTrainIsAnError) {
  EXPECT_THROW(make_plan(small_model(), {.frozen = {Component::kVision, Component::kLlm, Component::kProjector}}),
               UserError);
}

TEST(Plan, InferenceTrainsNothing) {
  const Plan plan = make_plan(small_model(), {.training = false});
  for (const auto& step : plan.steps) EXPECT_FALSE(step.backward);
  EXPECT_EQ(plan.state_bytes().optimizer, 0);
}

TEST(Plan, SharedWeightsAreAShardOfEachRankAndNotGathered) {
  const PlanOptions alone{.world = 4, .zero = {3}, .training = false};
  PlanOptions shared = alone;
  shared.shared_weights = true;
  const Plan gathers = make_plan(small_model(), alone), shares = make_plan(small_model(), shared);
  EXPECT_TRUE(gathers.gathers());
  EXPECT_FALSE(shares.gathers() || shares.leases());
  EXPECT_TRUE(shares.keeps_shard());
  EXPECT_EQ(shares.state_bytes().params, gathers.state_bytes().params);
  EXPECT_EQ(shares.state_bytes().transient, 0);
  EXPECT_NE(shares.hash(), gathers.hash()) << "ranks that do not agree about it must not meet";
}

TEST(Plan, CountsBytesByStage) {
  Model model{.family = "fake"};
  add_fake(model, "a", Component::kLlm, Modality::kText, {"x"}, {"hidden"}).with("weight", {1024, 64});
  add_fake(model, "b", Component::kLlm, Modality::kText, {"hidden"}, {"loss"}).with("weight", {512, 64});
  const int64_t a = 65536, b = 32768;
  const auto bytes = [&](int stage, Dtype dtype) {
    return make_plan(model, {.world = 4, .zero = {stage}, .compute = dtype}).state_bytes();
  };
  const StateBytes zero0 = bytes(0, Dtype::kBF16), zero1 = bytes(1, Dtype::kBF16), zero3 = bytes(3, Dtype::kBF16);
  EXPECT_EQ(zero0.params, (a + b) * 2);
  EXPECT_EQ(zero0.master, (a + b) * 4);
  EXPECT_EQ(zero0.optimizer, (a + b) * 8);
  EXPECT_EQ(zero1.params, (a + b) * 2);
  EXPECT_EQ(zero1.optimizer, (a + b) * 8 / 4);
  EXPECT_EQ(zero3.params, (a + b) * 2 / 4);
  EXPECT_EQ(zero3.gradients, (a + b) * 4 / 4);
  EXPECT_EQ(zero3.transient, (a + b) * 2);
  EXPECT_EQ(bytes(3, Dtype::kF32).master, 0) << "in fp32 the weight is its own master";
}

TEST(Plan, HashChangesWithWhatRanksMustAgreeOn) {
  const uint64_t base = make_plan(small_model(), {.world = 2}).hash();
  EXPECT_EQ(base, make_plan(small_model(), {.world = 2}).hash());
  EXPECT_NE(base, make_plan(small_model(), {.world = 3}).hash());
  EXPECT_NE(base, make_plan(small_model(), {.world = 2, .zero = {2}}).hash());
  EXPECT_NE(base, make_plan(small_model(), {.world = 2, .recompute = false}).hash());
}

TEST(Plan, AThousandRanksArePlannedWithoutATensor) {
  const Plan plan = make_plan(small_model(), {.world = 1000});
  EXPECT_EQ(unit_named(plan, "embed").padded, 64000);
}

TEST(ZeroStage, ReadsWordsAndDeepSpeedFiles) {
  EXPECT_EQ(ZeroStage::from_flag("zero3").stage, 3);
  EXPECT_EQ(ZeroStage::from_flag("0").stage, 0);
  EXPECT_EQ(ZeroStage::from_flag(R"({"zero_optimization": {"stage": 2.0}})").stage, 2);
  const std::string path = testing::TempDir() + "ds_zero.json";
  std::ofstream(path) << R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none"}}})";
  EXPECT_EQ(ZeroStage::from_flag(path).stage, 1);
}

TEST(ZeroStage, UnderstandsDeepSpeedsOlderWordsForOffloading) {
  const auto old = DeepSpeedChoice::from_flag(R"( {"zero_optimization": {"stage": 2, "cpu_offload": true}})");
  EXPECT_EQ(old.zero.stage, 2);
  EXPECT_TRUE(old.offload_optimizer);
  EXPECT_FALSE(old.offload_params);
  for (const char* key : {"cpu_offload_params", "cpu_offload_param"}) {
    const auto params = DeepSpeedChoice::from_flag(fmt::format(R"({{"zero_optimization": {{"{}": true}}}})", key));
    EXPECT_TRUE(params.offload_params) << key;
    EXPECT_FALSE(params.offload_optimizer) << key;
  }
  EXPECT_FALSE(DeepSpeedChoice::from_flag(R"({"zero_optimization": {"cpu_offload": false}})").offload_optimizer);
  EXPECT_THROW(DeepSpeedChoice::from_flag(R"({"zero_optimization": {"cpu_offload": "yes"}})"), UserError);
}

TEST(ZeroStage, ReadsTheDtypeOfGradientsBetweenRanks) {
  const auto reduce = [](const std::string& value) {
    const std::string file = R"({"zero_optimization": {"stage": 2}, "communication_data_type": )" + value + "}";
    const auto choice = DeepSpeedChoice::from_flag(file);
    EXPECT_TRUE(choice.ignored.empty());
    return choice.reduce;
  };
  EXPECT_EQ(reduce(R"("fp32")"), Dtype::kF32);
  EXPECT_EQ(reduce(R"("bf16")"), Dtype::kBF16);
  EXPECT_EQ(reduce("null"), std::nullopt);
  EXPECT_THROW(reduce(R"("int8")"), UserError);
}

TEST(ZeroStage, ValuesOfTheWrongKindAreUsageErrors) {
  for (const char* bad : {R"({"zero_optimization": 3})", R"({"zero_optimization": {"offload_optimizer": "cpu"}})",
                          R"({"zero_optimization": {"offload_param": {"device": 0}}})", R"({"zero_optimization": )",
                          R"({"zero_optimization": {"stage": 1}, "zero_optimization": {"stage": 3}})"}) {
    try {
      DeepSpeedChoice::from_flag(bad);
      ADD_FAILURE() << bad;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage) << e.what();
    }
  }
}

TEST(ZeroStage, RefusesWhatItWouldHaveToDrop) {
  EXPECT_TRUE(DeepSpeedChoice::from_flag("zero3_offload").offload_params);
  EXPECT_FALSE(DeepSpeedChoice::from_flag("zero2_offload").offload_params);
  EXPECT_THROW(ZeroStage::from_flag("zero4"), UserError);
  EXPECT_THROW(ZeroStage::from_flag(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})"),
               UserError);
  EXPECT_THROW(ZeroStage::from_flag(R"({"zero_optimization": {"stage": 7}})"), UserError);
}

}  // namespace
}  // namespace lockstep
