#include "lockstep/watch/memory_growth.h"

#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr unsigned kSeeds = 200;

/// `count` points, ten steps apart; `mib` of the point's number.
std::deque<MemoryPoint> points(int count, const std::function<double(int)>& mib) {
  std::deque<MemoryPoint> out;
  for (int i = 0; i < count; ++i) {
    out.push_back({.step = 10 * (i + 1), .bytes = static_cast<int64_t>(mib(i) * kMib), .by_use = {}, .peaks = {}});
  }
  return out;
}

TEST(MemoryGrowth, FindsARealLeakUnderNoiseWithItsRate) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 10);
    const auto trend = growth_of(points(45, [&](int i) { return 1000 + 4 * i + noise(random); }));
    ASSERT_TRUE(trend) << "seed " << seed;
    EXPECT_NEAR(trend->bytes_per_step / kMib, 0.4, 0.15) << "seed " << seed;
  }
}

TEST(MemoryGrowth, TellsTheRateOfAPlainRiseExactly) {
  const auto trend = growth_of(points(15, [](int i) { return 100 + 5 * i; }));
  ASSERT_TRUE(trend);
  EXPECT_DOUBLE_EQ(trend->bytes_per_step, 0.5 * kMib);
  EXPECT_EQ(trend->growth, 70 * kMib);
  EXPECT_EQ(trend->since_step, 10);
}

TEST(MemoryGrowth, TakesNoiseForNone) {
  int found = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 100);
    std::deque<MemoryPoint> all = points(200, [&](int) { return 1000 + noise(random); }), window;
    bool grows = false;
    for (const auto& point : all) {  // as a run of 200 records meets it
      window.push_back(point);
      if (window.size() > 45) window.pop_front();
      grows = grows || growth_of(window).has_value();
    }
    found += grows ? 1 : 0;
  }
  EXPECT_LE(found, 0) << "of " << kSeeds << " runs of pure noise";
}

TEST(MemoryGrowth, TakesAJumpForNoneWhereverItStands) {
  for (int at = 0; at <= 45; ++at) {
    EXPECT_FALSE(growth_of(points(45, [&](int i) { return i < at ? 1000 : 1500; }))) << "before point " << at;
  }
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 20);
    const int at = static_cast<int>(seed % 45);
    EXPECT_FALSE(growth_of(points(45, [&](int i) { return (i < at ? 1000 : 1500) + noise(random); })))
        << "seed " << seed << ", before point " << at;
  }
}

TEST(MemoryGrowth, TakesTheSawtoothOfEvaluationsForNone) {
  for (int every = 2; every <= 12; ++every) {
    EXPECT_FALSE(growth_of(points(45, [&](int i) { return i % every == 0 ? 1800 : 1000; }))) << "every " << every;
    EXPECT_FALSE(growth_of(points(45, [&](int i) { return 1000 + 50 * (i % every); }))) << "ramp of " << every;
  }
}

TEST(MemoryGrowth, FindsALeakUnderTheSawtoothOfEvaluations) {
  EXPECT_TRUE(growth_of(points(45, [](int i) { return 1000 + 5 * i + (i % 5 == 0 ? 800 : 0); })));
}

TEST(MemoryGrowth, TakesAPeakThatSettlesForNone) {
  EXPECT_FALSE(growth_of(points(45, [](int i) { return 1000 - 600 * std::exp(-i / 3.0); })));
}

TEST(MemoryGrowth, LeavesSmallGrowthAlone) {
  EXPECT_FALSE(growth_of(points(45, [](int i) { return 100 + 0.3 * i; })));    // 13 MiB
  EXPECT_FALSE(growth_of(points(45, [](int i) { return 10000 + 1.0 * i; })));  // 44 MiB, 0.4 %
  EXPECT_FALSE(growth_of(points(14, [](int i) { return 100 + 50 * i; })));     // too few to judge
}

/// Rank 0 stands still; rank 1's activations grow by 2 MiB a step, seen in backward; a device of 1 GiB.
MemoryMeasured leaking_rank(int64_t step) {
  MemoryMeasured out{.step = step, .max_steps = 1000, .predicted = {}, .ranks = {}};
  for (const int64_t leak : {int64_t{0}, 2 * step * kMib}) {
    RankMemory rank{.uncounted_bytes = 50 * kMib, .available_bytes = 9000 * kMib};
    rank.since_last.devices.push_back(
        {.name = "virtual:0",
         .capacity = 1024 * kMib,
         .alive = 100 * kMib + leak,
         .alive_by_use = {{"parameters", 100 * kMib}, {"activations", leak}},
         .phases = {{"forward", 120 * kMib, {}, ""}, {"backward", 200 * kMib + leak, {}, "layers.3"}}});
    out.ranks.push_back(rank);
  }
  return out;
}

TEST(MemoryGrowth, NamesRankDeviceUsePhaseRateAndWhenItIsFullOnce) {
  MemoryGrowth growth;
  std::vector<std::string> told;
  for (int64_t step = 1; step <= 60; ++step) {
    for (const auto& text : growth.add(leaking_rank(step)))
      told.push_back("step " + std::to_string(step) + ": " + text);
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told.front(),
            "step 15: memory grows and does not come back: activations on virtual:0 of rank 1, in the peak of backward "
            "too, 2.00 MiB more a step, 28.00 MiB more since step 1 (130.00 MiB now); at this rate it is full after "
            "about 397 more steps");
}

TEST(MemoryGrowth, TellsOfAllRanksThatGrowAndOfWhatIsBesideTensors) {
  MemoryGrowth growth;
  std::vector<std::string> told;
  for (int64_t step = 1; step <= 60; ++step) {
    MemoryMeasured memory{.step = step, .max_steps = 1000, .predicted = {}, .ranks = {}};
    for (int rank = 0; rank < 3; ++rank) {
      memory.ranks.push_back({.resident_bytes = (300 + 3 * step) * kMib,
                              .uncounted_bytes = (50 + 3 * step) * kMib,
                              .available_bytes = 3000 * kMib});
    }
    for (const auto& text : growth.add(memory)) told.push_back(text);
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(
      told.front(),
      "memory grows and does not come back: what the process holds beside tensors of ranks 0-2, 3.00 MiB more a "
      "step, 42.00 MiB more since step 1 (345.00 MiB resident now); at this rate it is full after about 1000 more "
      "steps");
}

}  // namespace
}  // namespace lockstep
