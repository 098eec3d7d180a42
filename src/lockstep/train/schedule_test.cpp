#include "lockstep/train/schedule.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Expected values: transformers 5.23 get_*_schedule_with_warmup with lr 1, 4 warm-up steps of 20.
Schedule schedule(ScheduleKind kind) {
  return {.kind = kind, .learning_rate = 1.0, .warmup_steps = 4, .total_steps = 20, .min_lr_rate = 0.1};
}

TEST(Schedule, WarmsUpFromZero) {
  for (const auto kind : {ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kConstantWithWarmup}) {
    EXPECT_DOUBLE_EQ(schedule(kind).at(0), 0.0);
    EXPECT_DOUBLE_EQ(schedule(kind).at(1), 0.25);
    EXPECT_DOUBLE_EQ(schedule(kind).at(4), 1.0);
  }
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::kConstant).at(0), 1.0);
}

TEST(Schedule, EndsAsTransformersDoes) {
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::kLinear).at(12), 0.5);
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::kLinear).at(20), 0.0);
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::kLinear).at(25), 0.0);
  EXPECT_NEAR(schedule(ScheduleKind::kCosine).at(8), 0.8535533905932737, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::kCosine).at(20), 0.0, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::kCosineWithMinLr).at(8), 0.8681980515339464, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::kCosineWithMinLr).at(20), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::kConstantWithWarmup).at(19), 1.0);
}

TEST(Schedule, RatioIsRoundedUpAndStepsWin) {
  EXPECT_EQ(warmup_steps_of(20, 0.06, 0), 2);
  EXPECT_EQ(warmup_steps_of(20, 0.0, 0), 0);
  EXPECT_EQ(warmup_steps_of(20, 0.06, 7), 7);
}

TEST(Schedule, NamesTheNearestOfAnUnknownName) {
  EXPECT_EQ(schedule_from_flag("cosine"), ScheduleKind::kCosine);
  try {
    schedule_from_flag("cosin");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("did you mean cosine?"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
