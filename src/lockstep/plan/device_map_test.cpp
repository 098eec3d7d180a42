#include "lockstep/plan/device_map.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/test_blocks.h"

namespace lockstep {
namespace {

using Devices = std::vector<int>;

DeviceMap read(const std::string& json, bool tied = false) { return read_device_map(named_model(tied), json, 4); }
Devices devices(const std::string& json, bool tied = false) { return read(json, tied).devices; }

/// The whole error text.
std::string refusal(const std::string& json, bool tied = false) {
  try {
    read(json, tied);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(DeviceMap, TheNearestAncestorWins) {
  EXPECT_EQ(devices(R"({"": 3})"), Devices(10, 3));
  EXPECT_EQ(devices(R"({"": 0, "model.layers": 1, "model.layers.2": 2})"), (Devices{0, 0, 0, 0, 1, 1, 1, 1, 2, 0}));
  EXPECT_EQ(devices(R"({"model": 1, "visual": 2, "lm_head": 3})"), (Devices{1, 2, 2, 2, 1, 1, 1, 1, 1, 3}));
}

TEST(DeviceMap, ReadsEveryWayToWriteADevice) {
  EXPECT_EQ(devices(R"({"model": "cuda:1", "visual": "virtual:2", "lm_head": "cpu"})"),
            (Devices{1, 2, 2, 2, 1, 1, 1, 1, 1, kCpuDevice}));
  EXPECT_EQ(devices(R"({"": "3"})"), Devices(10, 3));
}

TEST(DeviceMap, BlocksWithoutParametersStandWithTheNextThatHasSome) {
  const auto map = devices(R"({"model.embed_tokens": 0, "visual": 1, "model.layers": 2, "lm_head": 3})");
  EXPECT_EQ(map, (Devices{0, 1, 1, 1, 2, 2, 2, 2, 2, 3})) << "layout with the tower, merge and rope with layer 0";
}

TEST(DeviceMap, ALineForABlockWithoutParametersIsToldWhenItIsNotFollowed) {
  const auto map = read(R"({"": 0, "model.rotary_emb": 1, "visual.layout": 0})");
  EXPECT_EQ(map.devices, Devices(10, 0));
  ASSERT_EQ(map.notices.size(), 1U);
  EXPECT_EQ(map.notices[0],
            "--device_map: \"model.rotary_emb\": 1 is not followed: model.rotary_emb has no parameters and stands with "
            "the block after it, on 0");
}

TEST(DeviceMap, ANameInsideABlockPlacesItWhole) {
  EXPECT_EQ(devices(R"({"": 0, "model.layers.1.mlp": 2})"), (Devices{0, 0, 0, 0, 0, 0, 0, 2, 0, 0}));
  EXPECT_EQ(devices(R"({"": 0, "model.layers.1.mlp.up_proj.weight": 2, "model.layers.1.self_attn": 2})"),
            (Devices{0, 0, 0, 0, 0, 0, 0, 2, 0, 0}));
}

TEST(DeviceMap, PartsOfABlockOnTwoDevicesAreRefusedWithBothLines) {
  EXPECT_EQ(refusal(R"({"": 0, "model.layers.1": 1, "model.layers.1.mlp": "cpu"})"),
            "--device_map: \"model.layers.1\": 1 and \"model.layers.1.mlp\": \"cpu\" disagree: block model.layers.1 is "
            "placed whole, on one device; hint: give one line for \"model.layers.1\"");
}

TEST(DeviceMap, AParameterOfTheHeadUnderAnotherNameGoesWithTheHead) {
  // What Accelerate writes for a tied head: it stands with the embedding, the last norm with the last layers.
  const auto map = read(R"({"model": 1, "visual": 0, "model.embed_tokens": 0, "lm_head": 0, "model.norm": 1})", true);
  EXPECT_EQ(map.devices, (Devices{0, 0, 0, 0, 1, 1, 1, 1, 1, 0}));
  ASSERT_EQ(map.notices.size(), 1U);
  EXPECT_EQ(map.notices[0],
            "--device_map: \"model.norm\": 1 is not followed: it is part of block lm_head, which stands on 0");
}

TEST(DeviceMap, ATiedHeadNeedsNoLineOfItsOwn) {
  EXPECT_EQ(devices(R"({"visual": 0, "model": 1})", true).back(), 1);
  EXPECT_NE(refusal(R"({"visual": 0, "model": 1})").find("no device for lm_head; hint: add \"lm_head\": DEVICE"),
            std::string::npos);
}

TEST(DeviceMap, TellsBlocksWithoutADeviceByTheWidestName) {
  EXPECT_EQ(refusal(R"({"model.embed_tokens": 0, "model.layers.0": 1, "lm_head": 1})"),
            "--device_map: no device for visual.blocks.0, visual.blocks.1, model.layers.1, model.layers.2; hint: add "
            "\"visual\": DEVICE, \"model.layers.1\": DEVICE, \"model.layers.2\": DEVICE");
  EXPECT_NE(refusal("{}").find("hint: add \"\": DEVICE"), std::string::npos);
}

TEST(DeviceMap, RefusesUnknownNamesWithTheNearest) {
  EXPECT_EQ(refusal(R"({"": 0, "model.layer.1": 1, "visuall": 2})"),
            "--device_map: this fake model has no \"model.layer.1\", \"visuall\"; hint: the nearest there is: "
            "\"model.layers.1\", \"visual\"");
  std::string many = R"({"": 0)";
  for (int i = 0; i < 3000; ++i) many += fmt::format(R"(, "model.layers.x{}": 1)", i);
  const std::string refused = refusal(many + "}");
  EXPECT_NE(refused.find("and 2994 more; hint"), std::string::npos) << refused;
  EXPECT_NE(refused.find("and 58 more"), std::string::npos) << "nearest names of 64, not of millions: " << refused;
  EXPECT_NE(refusal(R"({"": 0, "model.layers.3": 1})").find("has no \"model.layers.3\""), std::string::npos);
  EXPECT_NE(refusal(R"({"": 0, "model.layers.": 1})").find("has no \"model.layers.\""), std::string::npos);
}

TEST(DeviceMap, SpeaksTheModelsDialects) {
  EXPECT_EQ(devices(R"({"model.visual": 0, "model.language_model": 1, "lm_head": 2})"),
            (Devices{1, 0, 0, 0, 1, 1, 1, 1, 1, 2}));
  EXPECT_EQ(devices(R"({"model": 0, "lm_head": 1})"), (Devices{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}))
      << "in memory \"model\" holds the tower too, and then every block is covered";
  EXPECT_NE(refusal(R"({"model.language_model": 0, "model.vision": 1, "lm_head": 1})").find("\"model.visual\""),
            std::string::npos)
      << "nearest names are of the same dialect";
}

TEST(DeviceMap, KnowsWhatIsNeverComputedWithAndModulesWithoutWeights) {
  EXPECT_EQ(devices(R"({"": 0, "visual.blocks.2": 1, "visual.rotary_pos_emb": 1, "model.layers.0.mlp.act_fn": 0})"),
            Devices(10, 0));
}

TEST(DeviceMap, RefusesADeviceThatIsNotThereAndANameThatStandsTwice) {
  EXPECT_EQ(refusal(R"({"model": 4})"),
            "--device_map: \"model\": device 4 is not there: this rank has 4 devices, 0 to 3; hint: without GPUs, "
            "--virtual_devices N makes N of them");
  EXPECT_EQ(refusal(R"({"model": 0, "visual": 1, "model": 1})"),
            "--device_map: \"model\" stands there twice; hint: keep one of the two lines");
  EXPECT_EQ(refusal(R"({"": 0, "": 1})"), "--device_map: \"\" stands there twice; hint: keep one of the two lines");
  for (const char* bad : {R"({"": -1})", R"({"": 0.5})", R"({"": null})", R"({"": "cuda:"})", R"({"": "disk"})",
                          R"({"": {"model": 0}})", R"({"": "cuda:1x"})"}) {
    EXPECT_NE(refusal(bad).find("expected a device"), std::string::npos) << bad << " " << refusal(bad);
  }
}

TEST(DeviceMap, ReadsAFileAndNamesIt) {
  const auto path = std::filesystem::path(testing::TempDir()) / "device_map_test.json";
  std::ofstream(path) << R"({"": 1, "modle": 2})";
  try {
    read_device_map(named_model(false), path.string(), 4);
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_TRUE(e.message().starts_with(path.string() + ": this fake model has no \"modle\"")) << e.what();
  }
  EXPECT_THROW(read_device_map(named_model(false), path.string() + ".missing", 4), UserError);
  std::filesystem::remove(path);
}

TEST(DeviceMap, TextMayBeginWithBlanksAndABreakIsShown) {
  EXPECT_EQ(devices(" \n{\"\": 3}"), Devices(10, 3));
  EXPECT_TRUE(refusal("{model: 0}")
                  .starts_with("--device_map: line 1 column 2: not valid JSON (10 bytes read); hint: "
                               "for example '{\"model\": 0, \"lm_head\": 1}'"))
      << refusal("{model: 0}");
  EXPECT_TRUE(refusal("absent.json").starts_with("--device_map absent.json: no such file")) << refusal("absent.json");
}

}  // namespace
}  // namespace lockstep
