#include "lockstep/plan/compatibility.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/model/test_block.h"

namespace lockstep {
namespace {

/// embed [128,64] -> tower [64,64] -> projector (tied to the tower when `shared`) -> head [128,64].
Model small_model(bool shared = false) {
  using enum Component;
  Model model{.family = "fake"};
  add_fake(model, "embed", kLlm, Modality::kText, {"input_ids"}, {"hidden"}).with("weight", {128, 64});
  add_fake(model, "tower", kVision, Modality::kImage, {"pixel_values"}, {"seen"}).with("weight", {64, 64});
  FakeBlock& projector = add_fake(model, "projector", kProjector, Modality::kImage, {"hidden", "seen"}, {"hidden"})
                             .with("weight", {64, 64});
  if (shared) projector.with_key("tied", "tower.weight", {64, 64}, true);
  add_fake(model, "head", kLlm, Modality::kText, {"hidden", "labels"}, {"loss"}).with("weight", {128, 64});
  return model;
}

const ComponentRow& row_of(const Compatibility& table, Component component) {
  for (const auto& row : table.rows) {
    if (row.component == component) return row;
  }
  throw std::out_of_range("row");
}

TEST(Compatibility, SaysWhatEachComponentIsAndHolds) {
  const Model model = small_model();
  const Plan plan = make_plan(model, {.world = 2, .zero = {2}, .frozen = {Component::kVision}});
  const Compatibility table = compatibility(model, plan);
  ASSERT_EQ(table.rows.size(), 3u);
  const ComponentRow &llm = row_of(table, Component::kLlm), &vision = row_of(table, Component::kVision);
  EXPECT_EQ(llm.role, ComponentRole::kTrained);
  EXPECT_EQ(llm.blocks, 2);
  EXPECT_EQ(llm.tensors, 2);
  EXPECT_EQ(llm.params, 2 * 128 * 64);
  EXPECT_EQ(llm.held.params, 2 * 128 * 64 * 2);
  EXPECT_EQ(llm.held.master, 128 * 64 * 4) << "half of it, of 16384";
  EXPECT_EQ(vision.role, ComponentRole::kFrozen);
  EXPECT_EQ(vision.held.total(), 64 * 64 * 2) << "weights alone";
  int64_t sum = 0;
  for (const auto& row : table.rows) sum += row.held.total();
  EXPECT_EQ(sum, plan.state_bytes().total() - plan.state_bytes().transient);
  EXPECT_EQ(llm.fit(), Fit::kOk);
  EXPECT_NO_THROW(table.require());
  EXPECT_NE(table.print().find("zero2, 2 ranks, bfloat16, activations recomputed"), std::string::npos) << table.print();
}

TEST(Compatibility, AnUnbuiltComponentHoldsNoByte) {
  Model model = small_model();
  leave_out(model, {Component::kVision, Component::kProjector});
  const Compatibility table = compatibility(model, make_plan(model, {.world = 2}));
  const ComponentRow& vision = row_of(table, Component::kVision);
  EXPECT_EQ(vision.role, ComponentRole::kNotBuilt);
  EXPECT_EQ(vision.held.total(), 0);
  EXPECT_EQ(vision.weight_bytes, 64 * 64 * 2);
  EXPECT_EQ(vision.fit(), Fit::kNote);
  EXPECT_EQ(table.json().at(1).at("role"), "not built");
  EXPECT_EQ(left_out_reason(model), "vision and projector are not built (--no_build vision,projector)");
  EXPECT_EQ(left_out_cure(model), "leave --no_build out");
}

TEST(Compatibility, WhatLeftAComponentOutIsNamed) {
  Model model = small_model();
  leave_out(model, {Component::kVision, Component::kProjector}, kNoAudioOutput);
  const Compatibility table = compatibility(model, make_plan(model, {.world = 2}));
  EXPECT_NE(row_of(table, Component::kVision).findings.at(0).reason.find("ENABLE_AUDIO_OUTPUT=0 leaves it out;"),
            std::string::npos);
  EXPECT_EQ(left_out_reason(model), "vision and projector are not built (ENABLE_AUDIO_OUTPUT=0)");
  EXPECT_EQ(left_out_cure(model), "leave ENABLE_AUDIO_OUTPUT=0 out");
}

TEST(Compatibility, NotesWhatPeopleWouldWonderAt) {
  const Model model = small_model(true);
  const Compatibility table = compatibility(
      model, make_plan(model, {.world = 2, .frozen = {Component::kVision}, .freeze = {.prefixes = {"embed."}}}));
  EXPECT_EQ(row_of(table, Component::kLlm).role, ComponentRole::kPartlyTrained);
  EXPECT_EQ(row_of(table, Component::kVision).findings.at(0).reason,
            "frozen and sharded: gathered for each use, like what is trained");
  EXPECT_EQ(row_of(table, Component::kProjector).findings.at(0).reason,
            "projector uses weights of tower (vision), which are frozen with it");
  EXPECT_NO_THROW(table.require());
}

TEST(Compatibility, RefusesABlockWithoutAPlace) {
  const Model model = small_model();
  Plan plan = make_plan(model, {});
  plan.steps.erase(plan.steps.begin() + 1);  // a tower that was built and never placed: incident I4
  const Compatibility table = compatibility(model, plan);
  EXPECT_EQ(row_of(table, Component::kVision).fit(), Fit::kRefused);
  try {
    table.require();
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    const std::string text = e.what();
    EXPECT_NE(text.find("vision: block tower: expected a place for each of its 1 parameters, found 0"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("--no_build vision"), std::string::npos) << text;
  }
}

TEST(Compatibility, RefusesWeightsOnAnotherDeviceThanTheirBlock) {
  const Model model = small_model();
  const PlanOptions options{.placement = {.num_devices = 2, .device_of_block = {0, 1, 1, 0}}};
  Plan plan = make_plan(model, options);
  const Compatibility split = compatibility(model, plan);
  EXPECT_NO_THROW(split.require());
  EXPECT_EQ(row_of(split, Component::kLlm).devices, std::set<int>{0});
  EXPECT_EQ(row_of(split, Component::kVision).devices, std::set<int>{1});
  EXPECT_NE(split.print().find("2 devices a rank"), std::string::npos);
  EXPECT_NE(split.print().find("on device 1\n"), std::string::npos) << split.print();
  plan.units[1].device = 0;
  plan.units[2].optimizer.clear();
  const Compatibility broken = compatibility(model, plan);
  EXPECT_EQ(row_of(broken, Component::kVision).findings.at(0).reason,
            "block tower: expected its weights on device 1, where it runs, found device 0");
  EXPECT_EQ(row_of(broken, Component::kProjector).findings.at(0).reason,
            "block projector: expected optimizer state of 4096 elements, found a place for 0");
  EXPECT_THROW(broken.require(), UserError);
}

TEST(Compatibility, InferenceUsesAndTrainsNothing) {
  const Model model = small_model();
  const Compatibility table = compatibility(model, make_plan(model, {.training = false}));
  for (const auto& row : table.rows) EXPECT_EQ(row.role, ComponentRole::kInUse);
  EXPECT_TRUE(left_out_reason(model).empty());
}

}  // namespace
}  // namespace lockstep
