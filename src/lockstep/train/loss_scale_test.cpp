#include "lockstep/train/loss_scale.h"

#include <string>
#include <vector>

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
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), 65536.0);
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), 131072.0);
}

// Expected: DynamicLossScaler of deepspeed 0.19.6 with the same arguments and overflows.
TEST(LossScale, FollowsWhatIsAskedOfIt) {
  using Scales = std::vector<double>;
  const auto follow = [](const LossScaling& how, const std::string& overflows) {
    LossScale scale(true, how);
    Scales all;
    for (const char one : overflows) {
      EXPECT_EQ(scale.update(one == 'x'), one != 'x');
      all.push_back(scale.value());
    }
    return all;
  };
  EXPECT_EQ(follow({.initial = 16, .window = 2, .hysteresis = 1}, "...x....x"),
            (Scales{16, 16, 32, 16, 16, 16, 32, 32, 16}));
  EXPECT_EQ(follow({.initial = 16, .least = 4, .window = 9}, "x.x.x"), (Scales{16, 16, 8, 8, 4}));
  EXPECT_EQ(follow({.initial = 16, .window = 9, .refills = true}, "x.x.xx"), (Scales{16, 16, 16, 16, 16, 8}));
  EXPECT_EQ(follow({.fixed = 128}, ".xx."), (Scales{128, 128, 128, 128}));
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
