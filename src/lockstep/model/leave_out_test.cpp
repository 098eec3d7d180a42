#include "lockstep/model/leave_out.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/test_block.h"

namespace lockstep {
namespace {

/// embed -> tower -> projector -> merge -> head.
Model small_model() {
  using enum Component;
  Model model{.family = "fake"};
  add_fake(model, "embed", kLlm, Modality::kText, {"input_ids"}, {"hidden"}).with("weight", {10, 4});
  add_fake(model, "tower", kVision, Modality::kImage, {"pixel_values"}, {"seen"})
      .with("weight", {6, 6})
      .with("bias", {6});
  add_fake(model, "projector", kProjector, Modality::kImage, {"seen"}, {"media"}).with("weight", {4, 6});
  add_fake(model, "merge", kProjector, Modality::kImage, {"hidden", "media", "pixel_index"}, {"hidden"});
  model.input_blocks = 4;
  add_fake(model, "head", kLlm, Modality::kText, {"hidden", "labels"}, {"loss"}).with("weight", {10, 4});
  model.unused = {{"tower.last.weight", {6}}};
  return model;
}

std::string refusal(Model model, const std::set<Component>& components) {
  try {
    leave_out(model, components);
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "none";
}

TEST(LeaveOut, AProjectorGoesWithItsTower) {
  Model model = small_model();
  leave_out(model, {Component::kVision});
  ASSERT_EQ(model.blocks.size(), 2u);
  EXPECT_EQ(model.blocks[0]->name(), "embed");
  EXPECT_EQ(model.blocks[1]->name(), "head");
  EXPECT_EQ(model.input_blocks, 1) << "merge, which also wrote hidden, is gone";
  ASSERT_EQ(model.left_out.size(), 2u);
  EXPECT_EQ(model.left_out[0].component, Component::kVision);
  EXPECT_EQ(model.left_out[0].by, kNoBuild);
  EXPECT_EQ(model.left_out[0].blocks, 1);
  EXPECT_EQ(model.left_out[0].tensors.size(), 2u);
  EXPECT_EQ(model.left_out[1].component, Component::kProjector);
  EXPECT_EQ(model.left_out[1].by, "");
  EXPECT_EQ(model.left_out[1].blocks, 2);
  const std::vector<ParamSource> carried = {
      {"tower.last.weight", {6}}, {"tower.weight", {6, 6}}, {"tower.bias", {6}}, {"projector.weight", {4, 6}}};
  EXPECT_EQ(model.unused, carried);
  EXPECT_EQ(names_of(components_of(model)), "llm");
}

TEST(LeaveOut, BothMayBeNamed) {
  Model model = small_model();
  leave_out(model, {Component::kVision, Component::kProjector});
  ASSERT_EQ(model.left_out.size(), 2u);
  EXPECT_EQ(model.left_out[1].by, kNoBuild);
}

TEST(LeaveOut, NothingAskedChangesNothing) {
  Model model = small_model();
  leave_out(model, {});
  EXPECT_EQ(model.blocks.size(), 5u);
  EXPECT_EQ(names_of(components_of(model)), "llm, vision, projector");
}

TEST(LeaveOut, RefusesWhatWouldNotRun) {
  EXPECT_NE(refusal(small_model(), {Component::kLlm}).find("the language model cannot be left out"), std::string::npos);
  const std::string alone = refusal(small_model(), {Component::kProjector});
  EXPECT_NE(alone.find("--no_build projector: nobody would read what vision computes then"), std::string::npos)
      << alone;
  EXPECT_NE(alone.find("--no_build vision,projector leaves out both"), std::string::npos) << alone;
  Model text{.family = "text"};
  add_fake(text, "embed", Component::kLlm, Modality::kText, {"input_ids"}, {"loss"}).with("weight", {10, 4});
  const std::string absent = refusal(std::move(text), {Component::kVision});
  EXPECT_NE(absent.find("expected components of this text model (llm), found vision"), std::string::npos) << absent;
}

TEST(LeaveOut, RefusesWhatTheLanguageModelNeeds) {
  Model reads = small_model();
  add_fake(reads, "late", Component::kLlm, Modality::kText, {"hidden", "media"}, {"logits"});
  EXPECT_NE(refusal(std::move(reads), {Component::kVision}).find("block late of the language model reads"),
            std::string::npos);
  Model shares = small_model();
  add_fake(shares, "late", Component::kLlm, Modality::kText, {"hidden"}, {"logits"})
      .with_key("tied", "tower.weight", {6, 6}, true);
  EXPECT_NE(refusal(std::move(shares), {Component::kVision}).find("block late shares tower.weight with tower"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
