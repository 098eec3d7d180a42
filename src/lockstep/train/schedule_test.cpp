#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

/// After 0, 2, 4, 8, 13, 20 and 25 updates.
void expect(ScheduleKind kind, int64_t warmup, const std::string& shape, const std::vector<double>& rates) {
  const std::vector<int64_t> updates{0, 2, 4, 8, 13, 20, 25};
  Schedule one = schedule(kind);
  one.warmup_steps = warmup;
  one.shape = ScheduleShape::from_flag(shape, kind);
  EXPECT_NO_THROW(one.shape.check(kind, 1.0, 0));
  for (size_t i = 0; i < updates.size(); ++i) EXPECT_NEAR(one.at(updates[i]), rates[i], 1e-14) << shape << " " << i;
}

TEST(Schedule, TakesTheShapesThatTransformersTakes) {
  expect(ScheduleKind::kCosineWithRestarts, 4, R"({"num_cycles": 2})", {0, 0.5, 1, 0.5, 0.9619397662556434, 0, 0});
  expect(ScheduleKind::kPolynomial, 4, R"({'power': 2.0, 'lr_end': 0.01})",
         {0, 0.5, 1, 0.566875, 0.1994921875, 0.01, 0.01});
  expect(ScheduleKind::kInverseSqrt, 4, "",
         {0, 0.5, 1, 0.7071067811865475, 0.5547001962252291, 0.4472135954999579, 0.4});
  expect(ScheduleKind::kInverseSqrt, 4, R"({"timescale": 7})",
         {0, 0.5, 1, 0.7977240352174657, 0.6614378277661477, 0.5516772843673704, 0.5});
  expect(ScheduleKind::kInverseSqrt, 0, "",
         {1, 0.9999000149975006, 0.9998000599800071, 0.9996002398401119, 0.9993506330642176, 0.9990014975043671,
          0.9987523388778446});
  expect(ScheduleKind::kCosine, 4, R"({"num_cycles": 1.5})",
         {0, 0.5, 1, 0.14644660940672627, 0.7777851165098009, 0, 0.9903926402016152});
  expect(ScheduleKind::kCosineWithMinLr, 4, R"({"min_lr": 0.2})",
         {0, 0.5, 1, 0.882842712474619, 0.5219638711935488, 0.2, 0.37777190679215916});
}

// Expected values: transformers 5.23 optimization.py, _get_wsd_scheduler_lambda and
// _get_cosine_with_min_lr_schedule_with_warmup_lr_rate_lambda.
TEST(Schedule, WarmsUpAndFallsInWaysOfItsOwn) {
  using enum ScheduleKind;
  expect(kWarmupStableDecay, 4, R"({"num_decay_steps": 10})", {0, 0.5, 1, 1, 0.7938926261462366, 0, 0});
  expect(kWarmupStableDecay, 4, R"({"num_decay_steps": 10, "num_cycles": 1.5})",
         {0, 0.5, 1, 1, 0.024471741852423234, 0, 0});
  expect(kWarmupStableDecay, 4,
         "{'num_decay_steps': 8, 'num_stable_steps': 3, 'warmup_type': 'cosine', 'decay_type': '1-sqrt', "
         "'min_lr_ratio': 0.1}",
         {0.1, 0.55, 1, 0.6818019484660537, 0.22057713659400527, 0.1, 0.1});
  expect(kWarmupStableDecay, 4,
         R"({"num_decay_steps": 12, "warmup_type": "1-sqrt", "decay_type": "linear", "min_lr_ratio": 0.2})",
         {0.2, 0.434314575050762, 1, 1, 0.6666666666666666, 0.2, 0.2});
  expect(
      kCosineWarmupWithMinLr, 4, R"({"min_lr": 0.1})",
      {0.25, 0.75, 0.9913533761814537, 0.800006604858821, 0.3777924554357096, 0.10864662381854631, 0.3777924554357094});
  expect(kCosineWarmupWithMinLr, 4, R"({"min_lr_rate": 0.2, "warmup_lr_rate": 0.3})",
         {0.3, 0.7666666666666666, 0.9923141121612922, 0.822228093207841, 0.44692662705396413, 0.20768588783870784,
          0.4469266270539639});
  expect(kCosineWarmupWithMinLr, 0, R"({"min_lr_rate": 0.2})",
         {0.9950753362380551, 0.9564026096753471, 0.882842712474619, 0.6625737860160924, 0.36488589908301083,
          0.2049246637619449, 0.3648858990830107});
  EXPECT_THROW(ScheduleShape{}.check(kWarmupStableDecay, 1.0, 0), UserError);
  EXPECT_THROW(ScheduleShape{}.check(kCosineWarmupWithMinLr, 1.0, 0), UserError);
  for (const char* shape : {R"({"num_decay_steps": 1.5})", R"({"decay_type": "log"})", R"({"warmup_lr_rate": 0.1})"}) {
    EXPECT_THROW(ScheduleShape::from_flag(shape, kWarmupStableDecay), UserError) << shape;
  }
}

/// transformers' lambda (optimization.py, _get_wsd_scheduler_lambda) as LLaMA-Factory calls it: create_custom_scheduler of its
/// train/trainer_utils.py fills in what the kwargs do not say, -1 here.
double rate_of_llama_factory(int64_t step, int64_t total, int64_t warmup, int64_t stable, int64_t decay) {
  const int64_t remaining = total - warmup, num_stable_steps = remaining / 3;
  const int64_t num_decay_steps = remaining - num_stable_steps;
  if (stable < 0) stable = num_stable_steps;
  if (decay < 0) decay = num_decay_steps;
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  if (step < warmup + stable) return 1.0;
  if (step >= warmup + stable + decay) return 0.0;
  const double progress =
      static_cast<double>(step - warmup - stable) / static_cast<double>(std::max<int64_t>(1, decay));
  return std::max(0.0, 0.5 * (1.0 + std::cos(3.14159265358979323846 * progress)));
}

TEST(Schedule, FillsInStepsAsLlamaFactoryDoes) {
  struct Case {
    const char* shape;
    int64_t stable, decay;
  };
  for (const auto& [shape, stable, decay] :
       {Case{R"({"num_stable_steps": "third", "num_decay_steps": "two_thirds"})", -1, -1},
        Case{R"({"num_stable_steps": "third", "num_decay_steps": 5})", -1, 5},
        Case{R"({"num_stable_steps": 2, "num_decay_steps": "two_thirds"})", 2, -1}}) {
    for (const int64_t total : {20, 21, 100}) {
      for (const int64_t warmup : {0, 4}) {
        Schedule one{.kind = ScheduleKind::kWarmupStableDecay, .learning_rate = 1.0, .warmup_steps = warmup};
        one.total_steps = total;
        one.shape = ScheduleShape::from_flag(shape, one.kind);
        EXPECT_NO_THROW(one.shape.check(one.kind, 1.0, 0));
        for (int64_t step = 0; step <= total + 1; ++step) {
          EXPECT_NEAR(one.at(step), rate_of_llama_factory(step, total, warmup, stable, decay), 1e-14)
              << shape << " " << total << " " << warmup << " " << step;
        }
      }
    }
  }
  const auto kind = ScheduleKind::kWarmupStableDecay;
  const std::string words = R"({"num_decay_steps":"two_thirds","num_stable_steps":"third"})";
  EXPECT_EQ(ScheduleShape::from_flag(words, kind).as_json().dump(), words);
  EXPECT_THROW(ScheduleShape::from_flag(R"({"num_decay_steps": "third"})", kind), UserError);
  EXPECT_THROW(ScheduleShape::from_flag(R"({"num_decay_steps": -1})", kind), UserError);
}

// Expected values: the classes of these names of deepspeed 0.19.8, stepped once an update as its engine does.
TEST(Schedule, FollowsDeepSpeedsOwn) {
  using enum ScheduleKind;
  const std::vector<int64_t> updates{0, 1, 2, 4, 5, 8, 13, 20, 21, 25};
  const auto expect = [&](ScheduleKind kind, int64_t warmup, const std::string& shape,
                          const std::vector<double>& rates) {
    Schedule one = schedule(kind);
    one.learning_rate = 2.0;
    one.warmup_steps = warmup;
    one.shape = ScheduleShape::from_flag(shape, kind);
    for (size_t i = 0; i < updates.size(); ++i) {
      EXPECT_NEAR(one.at(updates[i]), 2 * rates[i], 1e-14)
          << schedule_names().at(static_cast<size_t>(kind)) << shape << i;
    }
  };
  expect(kWarmup, 4, "", {0, 0, 0.5, 1, 1, 1, 1, 1, 1, 1});
  expect(kWarmup, 1, "", {0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
  expect(kWarmup, 4, R"({"warmup_min_lr": 0.2, "warmup_type": "linear"})", {0.1, 0.1, 0.325, 0.775, 1, 1, 1, 1, 1, 1});
  expect(kWarmupDecay, 4, "{'warmup_min_lr': 0.2, 'warmup_type': 'log'}",
         {0.1, 0.1, 0.55, 1, 1, 0.83125, 0.55, 0.15625, 0.1, 0.1});
  expect(kWarmupDecay, 4, R"({"warmup_type": "linear"})", {0, 0, 0.25, 0.75, 1, 0.8125, 0.5, 0.0625, 0, 0});
  expect(kWarmupCosine, 4, "",
         {0, 0, 0.5, 1, 0.9903936009375951, 0.8535680352542144, 0.4025145935080367, 1e-4, 1e-4, 1e-4});
  expect(kWarmupCosine, 4, R"({"warmup_min_ratio": 0.2, "cos_min_ratio": 0.05, "warmup_type": "linear"})",
         {0, 0.2, 0.4, 0.8, 0.9908730081915345, 0.8608757210636101, 0.4323320970423391, 0.05, 0.05, 0.05});
  EXPECT_THROW(ScheduleShape::from_flag(R"({"warmup_type": "slow"})", kWarmup), UserError);
  EXPECT_THROW(ScheduleShape::from_flag(R"({"warmup_type": "linear"})", kCosine), UserError);
}

// As transformers does.
TEST(Schedule, RefusesAnEndThatIsNoneOrNotBelowItsBeginning) {
  using enum ScheduleKind;
  EXPECT_THROW(ScheduleShape{}.check(kCosineWithMinLr, 1e-4, 0), UserError);
  EXPECT_NO_THROW(ScheduleShape{}.check(kCosineWithMinLr, 1e-4, 0.1));
  EXPECT_NO_THROW(ScheduleShape{.min_lr = 0.0}.check(kCosineWithMinLr, 1e-4, 0));
  EXPECT_THROW(ScheduleShape{}.check(kPolynomial, 1e-8, 0), UserError);
  EXPECT_THROW(ScheduleShape{.lr_end = 1.0}.check(kPolynomial, 1e-2, 0), UserError);
  EXPECT_NO_THROW(ScheduleShape{.lr_end = 0.0}.check(kPolynomial, 1e-8, 0));
}

TEST(Schedule, RefusesWhatItDoesNotTakeByName) {
  for (const auto& [shape, said] :
       std::vector<std::pair<std::string, std::string>>{{R"({"power": 2})", "\"power\" is nothing that cosine takes"},
                                                        {R"({"num_cycles": "two"})", "expected a number"},
                                                        {R"({"num_cycles": -1})", "not negative"},
                                                        {"[1]", "expected an object"},
                                                        {"num_cycles=2", "expected an object"}}) {
    try {
      (void)ScheduleShape::from_flag(shape, ScheduleKind::kCosine);
      FAIL() << shape;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
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
