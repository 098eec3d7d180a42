#include "lockstep/train/loss_scale.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(LossScale, ForgivesTheFirstOverflowThenHalves) {
  LossScale scale(true);
  EXPECT_FALSE(scale.update(true));
  EXPECT_EQ(scale.value(), 65536.0);
  EXPECT_FALSE(scale.update(true));
  EXPECT_EQ(scale.value(), 32768.0);
  EXPECT_FALSE(scale.update(true));
  EXPECT_EQ(scale.value(), 16384.0);
}

TEST(LossScale, DoublesAfterAWindowWithoutOverflow) {
  LossScale scale(true);
  for (int i = 0; i < 999; ++i) EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), 65536.0);
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), 131072.0);
}

TEST(LossScale, RefusesToGoBelowOne) {
  LossScale scale(true);
  scale.restore({.scale = 1.0, .steps = 5, .last_overflow = 4, .hysteresis = 1});
  try {
    scale.update(true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kNumerics);
  }
}

TEST(LossScale, IsOneWhereItIsNotNeeded) {
  LossScale scale(false);
  EXPECT_TRUE(scale.update(false));
  EXPECT_FALSE(scale.update(true));
  scale.restore({.scale = 4096});
  EXPECT_EQ(scale.value(), 1.0);
}

}  // namespace
}  // namespace lockstep
