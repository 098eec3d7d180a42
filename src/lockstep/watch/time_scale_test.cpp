#include "lockstep/watch/time_scale.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TimeScale, CutsASilenceThatWouldDwarfTheRest) {
  const TimeScale scale({-601, -600.9, -600.8, -600.7, -600.6, -600.5, -600.4, -600.3}, -601, 0);
  ASSERT_EQ(scale.breaks().size(), 1U);
  EXPECT_NEAR(scale.breaks()[0].seconds, 600.3, 1e-9);
  EXPECT_NEAR(scale.breaks()[0].from, 1 / 1.12, 1e-9);
  EXPECT_NEAR(scale.breaks()[0].to, 1, 1e-9);
  EXPECT_EQ(scale.at(-601), 0);
  EXPECT_EQ(scale.at(0), 1);
  EXPECT_NEAR(scale.at(-600.65), 0.5 / 1.12, 1e-9);
  for (const auto& tick : scale.ticks(9)) EXPECT_LT(tick.seconds, -600);
  EXPECT_EQ(scale.ticks(9).size(), 8U);  // every 0.1 s from -601 to -600.3
}

TEST(TimeScale, CutsTheWaitAtTheEndEarlierThanOthers) {
  const TimeScale scale({-12, -11, -10, -9, -8, -7, -6, -5, -4}, -13, 0);  // 4 of 13 seconds
  ASSERT_EQ(scale.breaks().size(), 1U);
  EXPECT_EQ(scale.breaks()[0].seconds, 4);
  EXPECT_NEAR(scale.at(-8.5), 0.5 / 1.12, 1e-9);
}

TEST(TimeScale, IsEvenWithoutSuchASilence) {
  const TimeScale scale({-4, -3, -2, -1, -0.5}, -5, 0);
  EXPECT_TRUE(scale.breaks().empty());
  EXPECT_DOUBLE_EQ(scale.at(-2.5), 0.5);
  EXPECT_EQ(scale.at(-7), 0);
  EXPECT_EQ(scale.at(1), 1);
  EXPECT_EQ(TimeScale({}, 0, 0).at(0), 0);
}

}  // namespace
}  // namespace lockstep
