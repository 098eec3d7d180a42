#include "lockstep/base/memory_account.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(MemoryAccount, KeepsTheHigherPeakOfEachPhase) {
  DeviceAccount device{.name = "cpu",
                       .phases = {{"load", 10, {{"parameters", 10}}, "embed"}, {"forward", 20, {}, "a"}}};
  device.raise_to({{"load", 9, {}, "later"}, {"forward", 21, {{"logits", 1}}, "b"}, {"save", 5, {}, "c"}});
  ASSERT_EQ(device.phases.size(), 3U);
  EXPECT_EQ(device.find("load")->at, "embed");
  EXPECT_EQ(device.find("forward")->at, "b");
  EXPECT_EQ(device.find("save")->bytes, 5);
  EXPECT_EQ(device.find("evaluate"), nullptr);
  EXPECT_EQ(device.peak_bytes(), 21);
  EXPECT_EQ(DeviceAccount{}.peak(), nullptr);
}

TEST(MemoryAccount, FitsWhereTheCapacityIsNotKnown) {
  DeviceAccount device{.phases = {{"load", 10, {}, ""}}};
  EXPECT_TRUE(device.fits());
  device.capacity = 10;
  EXPECT_TRUE(device.fits());
  device.capacity = 9;
  EXPECT_FALSE(device.fits());
}

TEST(MemoryAccount, OfARankIsReadBackFromItsJson) {
  RankMemory rank{
      .idle_bytes = 1, .resident_bytes = 2, .resident_peak_bytes = 3, .uncounted_bytes = 4, .available_bytes = 5};
  rank.since_start.devices = {{.name = "cuda:1",
                               .capacity = 9,
                               .alive = 3,
                               .alive_by_use = {{"parameters", 3}},
                               .phases = {{"step", 7, {{"optimizer", 4}, {"parameters", 3}}, "head"}}}};
  rank.since_start.batch = "2 rows";
  rank.since_last.host = DeviceAccount{.name = "cpu"};
  const Json written = as_json(rank);
  EXPECT_EQ(as_json(rank_memory_from(written)), written);
  EXPECT_EQ(rank_memory_from(written).since_start.devices.front().find("step")->by_use.front().first, "optimizer");
  EXPECT_EQ(rank_memory_from(Json(3)).resident_bytes, 0);
}

}  // namespace
}  // namespace lockstep
