#include "lockstep/cli/component_flags.h"

#include <functional>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/test_refusal.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/model/test_block.h"

namespace lockstep {
namespace {

using enum Component;
using Components = std::set<Component>;

ComponentChoice parse(const std::vector<std::string>& args) {
  ComponentChoice flags;
  CLI::App app("a verb", "lockstep verb");
  add_component_flags(app, flags, /*rates=*/true);
  EXPECT_TRUE(parse_flags(app, args));
  return flags;
}

/// Of a model that sees.
Components frozen(const std::vector<std::string>& args) {
  Components all = parse(args).frozen();
  for (const Component other : {Component::kAudio, Component::kAudioProjector, Component::kTalker}) all.erase(other);
  return all;
}

Model model_of(bool sees) {
  Model model{.family = sees ? "llava" : "qwen2"};
  if (sees) {
    add_fake(model, "tower", kVision, Modality::kImage, {"pixel_values"}, {"seen"});
    add_fake(model, "projector", kProjector, Modality::kImage, {"seen"}, {"hidden"});
  }
  add_fake(model, "head", kLlm, Modality::kText, {"hidden"}, {"loss", "hidden"});
  return model;
}

TEST(ComponentFlags, SwitchesAreMsSwifts) {
  EXPECT_EQ(frozen({}), (Components{kVision, kProjector}));
  EXPECT_EQ(frozen({"--freeze_vit", "false"}), Components{kProjector});
  EXPECT_EQ(frozen({"--freeze_llm", "true", "--freeze_aligner", "false"}), (Components{kLlm, kVision}));
}

TEST(ComponentFlags, ListsSayWhatIsTrainedAndWhatIsFrozen) {
  EXPECT_EQ(frozen({"--train", "llm,projector"}), Components{kVision});
  EXPECT_EQ(frozen({"--train", "llm", "aligner"}), Components{kVision});
  EXPECT_EQ(frozen({"--train", "llm,projector", "--freeze", "vision"}), Components{kVision});
  EXPECT_EQ(frozen({"--train", "projector", "--freeze", "vit"}), (Components{kLlm, kVision}));
  EXPECT_EQ(frozen({"--freeze", "vit"}), Components{kVision})
      << "the others are trained, whatever the switches' defaults";
  EXPECT_EQ(frozen({"--train", "vision", "--freeze_vit", "false"}), (Components{kLlm, kProjector}));
}

TEST(ComponentFlags, ContradictionsAreRefused) {
  EXPECT_NE(refusal([] {
              frozen({"--train", "llm,vit", "--freeze", "vision"});
            }).find("--train llm,vit and --freeze vision contradict each other about vision"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              frozen({"--train", "vision", "--freeze_vit", "true"});
            }).find("--freeze_vit true: --train says that vision is trained"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              frozen({"--freeze", "vision", "--freeze_vit", "false"});
            }).find("--freeze_vit false: --freeze says that vision is frozen"),
            std::string::npos);
  const std::string slip = refusal([] { frozen({"--train", "vison"}); });
  EXPECT_NE(slip.find("expected a list of llm, vision, projector, audio, audio_projector, talker, found \"vison\""),
            std::string::npos)
      << slip;
  EXPECT_NE(slip.find("did you mean vision?"), std::string::npos) << slip;
}

TEST(ComponentFlags, RatesAreRatiosOfTheLearningRate) {
  const auto ratios = [](const std::vector<std::string>& args) { return parse(args).rate_ratios(1e-4); };
  EXPECT_TRUE(ratios({}).empty());
  EXPECT_TRUE(ratios({"--vit_lr", "none"}).empty());
  const auto both =
      ratios({"--freeze_vit", "false", "--freeze_aligner", "false", "--vit_lr", "1e-5", "--aligner_lr", "0"});
  ASSERT_EQ(both.size(), 4u) << "of both towers and both projectors, whatever of them a model has";
  EXPECT_DOUBLE_EQ(both.at(kVision), 0.1);
  EXPECT_EQ(both.at(kProjector), 0.0);
  const auto listed = ratios({"--train", "llm,vision", "--component_lr", "vision=2e-4,llm=1e-5", "--vit_lr", "2e-4"});
  EXPECT_DOUBLE_EQ(listed.at(kVision), 2.0);
  EXPECT_DOUBLE_EQ(listed.at(kLlm), 0.1);
}

TEST(ComponentFlags, MsSwiftsWordsStandForTowersAndProjectorsOfEveryKind) {
  const Components all = parse({}).frozen();
  EXPECT_EQ(all, (Components{kVision, kProjector, Component::kAudio, Component::kAudioProjector, Component::kTalker}));
  EXPECT_EQ(parse({"--train", "vit"}).frozen(),
            (Components{kLlm, kProjector, Component::kAudioProjector, Component::kTalker}));
  EXPECT_EQ(parse({"--freeze", "aligner"}).frozen(),
            (Components{kProjector, Component::kAudioProjector, Component::kTalker}));
  EXPECT_FALSE(parse({"--train", "generator"}).frozen().contains(Component::kTalker));
  EXPECT_FALSE(parse({"--freeze_vit", "false"}).frozen().contains(Component::kAudio));
  const auto ratios = parse({"--train", "llm,audio", "--vit_lr", "1e-5"}).rate_ratios(1e-4);
  EXPECT_EQ(ratios.size(), 1u) << "the tower that is frozen has no rate";
  EXPECT_TRUE(ratios.contains(Component::kAudio));
}

TEST(ComponentFlags, RatesThatSayNothingAreRefused) {
  const auto why = [](const std::vector<std::string>& args, double rate = 1e-4) {
    return refusal([&] { parse(args).rate_ratios(rate); });
  };
  EXPECT_NE(why({"--vit_lr", "1e-5"}).find("--vit_lr 1e-5: vision is frozen and learns nothing"), std::string::npos);
  EXPECT_NE(why({"--train", "vision", "--vit_lr", "1e-5", "--component_lr", "vision=2e-5"})
                .find("--vit_lr 1e-5 and --component_lr vision=2e-5 give vision two learning rates"),
            std::string::npos);
  EXPECT_NE(why({"--component_lr", "vision"}).find("expected NAME=RATE, found \"vision\""), std::string::npos);
  EXPECT_NE(why({"--train", "vision", "--vit_lr", "fast"}).find("found \"fast\""), std::string::npos);
  EXPECT_NE(why({"--train", "vision", "--vit_lr", "-1"}).find("at least 0"), std::string::npos);
  EXPECT_NE(why({"--train", "llm,vision", "--vit_lr", "1e-5"}, 0).find("--learning_rate is 0"), std::string::npos);
}

TEST(ComponentFlags, WhatIsNotBuiltIsNotTrained) {
  const auto why = [](const std::vector<std::string>& args) {
    return refusal([&] { parse(args).check_unbuilt({kVision}, {Component::kAudio}); });
  };
  EXPECT_EQ(refusal([] {
              parse({"--train", "vit,llm"}).check_unbuilt({kVision});
            }),
            "none")
      << "a model that hears has another tower to train";
  EXPECT_EQ(why({}), "none");
  EXPECT_EQ(why({"--train", "llm"}), "none");
  EXPECT_EQ(why({"--freeze", "vision"}), "none") << "frozen and not built do not contradict each other";
  EXPECT_NE(why({"--train", "vit,llm"}).find("--train vit,llm: vision is not built (--no_build vision)"),
            std::string::npos);
  EXPECT_NE(why({"--freeze_vit", "false"}).find("--freeze_vit false: vision is not built"), std::string::npos);
  EXPECT_NE(why({"--vit_lr", "1e-5"}).find("--vit_lr 1e-5: vision is not built"), std::string::npos);
}

TEST(ComponentFlags, AModelIsAskedWhatItHas) {
  const Model text = model_of(false), sees = model_of(true);
  const auto why = [](const Model& model, const std::vector<std::string>& args) {
    return refusal([&] { parse(args).check_against(model); });
  };
  EXPECT_EQ(why(sees, {"--train", "llm,vision", "--freeze", "projector"}), "none");
  EXPECT_EQ(why(text, {"--freeze_vit", "false"}), "none") << "ms-swift's switches mean nothing where there is no tower";
  EXPECT_NE(why(text, {"--train", "llm,vision"})
                .find("--train llm,vision: expected components of this qwen2 model (llm), found vision"),
            std::string::npos);
  EXPECT_NE(why(text, {"--vit_lr", "1e-5"}).find("--vit_lr 1e-5: expected components"), std::string::npos);
  Model blind = model_of(true);
  leave_out(blind, {kVision});
  EXPECT_NE(why(blind, {"--train", "llm,projector"}).find("projector is not built"), std::string::npos);
  EXPECT_EQ(why(blind, {"--freeze", "vision"}), "none");
}

}  // namespace
}  // namespace lockstep
