#include "lockstep/plan/split.h"

#include <algorithm>
#include <random>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/plan/device_load.h"
#include "lockstep/plan/test_costs.h"

namespace lockstep {
namespace {

std::optional<std::vector<int>> split(const std::vector<BlockCost>& costs, std::vector<double> capacities,
                                      int micro_batches = 1) {
  return best_split({.costs = costs,
                     .end = static_cast<int>(costs.size()),
                     .capacities = std::move(capacities),
                     .micro_batches = micro_batches});
}

TEST(Split, CutsWhereTheLargestPartIsLeast) {
  EXPECT_EQ(split(plain_costs({4, 3, 3, 2, 6}), {1, 1, 1}), (std::vector<int>{2, 4, 5})) << "7, 5, 6";
}

TEST(Split, AmongEqualPeaksTheSmallestIsLargest) {
  // 9 | 1 … : the 9 stands alone whatever comes; of the rest 2 + 2 beats 1 + 3.
  EXPECT_EQ(split(plain_costs({9, 1, 1, 1, 1}), {1, 1, 1}), (std::vector<int>{1, 3, 5}));
}

TEST(Split, AmongEqualSplitsTheFirstStageIsShortest) {
  EXPECT_EQ(split(plain_costs({1, 0, 1}), {1, 1}), (std::vector<int>{1, 3}));
}

TEST(Split, GivesALargerDeviceMore) {
  EXPECT_EQ(split(plain_costs({1, 1, 1, 1, 1, 1}), {2, 1}), (std::vector<int>{4, 6}));
  EXPECT_EQ(split(plain_costs({1, 1, 1, 1, 1, 1}), {1, 2}), (std::vector<int>{2, 6}));
}

TEST(Split, GivesEarlyStagesLessWhenTheyHoldMoreMicroBatches) {
  std::vector<BlockCost> costs(9);
  for (auto& cost : costs) cost.saved = 1;
  EXPECT_EQ(split(costs, {1, 1}, 1), (std::vector<int>{4, 9}));
  EXPECT_EQ(split(costs, {1, 1}, 4), (std::vector<int>{3, 9})) << "2 * 3 against 6";
}

TEST(Split, HasNoAnswerForFewerBlocksThanStages) { EXPECT_EQ(split(plain_costs({1, 1}), {1, 1, 1}), std::nullopt); }

TEST(Split, OfAPartKnowsThatAnOwnerStandsOutside) {
  std::vector<BlockCost> costs = plain_costs({5, 2, 2, 2});
  costs[3].tied_to = 0;
  costs[3].tied = 4;
  const auto cuts = best_split({.costs = costs, .begin = 1, .end = 4, .capacities = {1, 1}});
  EXPECT_EQ(cuts, (std::vector<int>{3, 4})) << "2 + 2 against 2 + 4";
}

TEST(Split, TheMostEvenOneMayHaveALargerPeak) {
  const auto costs = plain_costs({1, 4, 2, 2});
  EXPECT_EQ(split(costs, {1, 1, 1}), (std::vector<int>{1, 2, 4})) << "1, 4, 4";
  const auto even = most_even_split({.costs = costs, .end = 4, .capacities = {1, 1, 1}});
  ASSERT_TRUE(even);
  EXPECT_EQ(even->ends, (std::vector<int>{2, 3, 4})) << "5, 2, 2";
  EXPECT_DOUBLE_EQ(even->ratio, 2.5);
}

struct Found {
  std::vector<int> ends;  // of the cut whose largest peak is least
  double ratio = 1e300;   // the least of any cut
};

/// All cuts, judged by device_loads: the same answer by another way.
Found by_exhaustion(const std::vector<BlockCost>& costs, const std::vector<double>& capacities, int micro_batches) {
  const int blocks = static_cast<int>(costs.size()), stages = static_cast<int>(capacities.size());
  std::vector<DeviceLimit> limits;
  for (int s = 0; s < stages; ++s) limits.push_back({.device = s});
  std::tuple<double, double, std::vector<int>> best{1e300, 0, {}};
  Found found;
  for (int chosen = 0; chosen < 1 << (blocks - 1); ++chosen) {  // bit i: a border behind block i
    std::vector<int> ends, devices;
    for (int i = 0; i < blocks; ++i) {
      devices.push_back(static_cast<int>(ends.size()));
      if (i + 1 == blocks || (chosen >> i & 1) != 0) ends.push_back(i + 1);
    }
    if (static_cast<int>(ends.size()) != stages) continue;
    double largest = 0, smallest = 1e300;
    const auto loads = device_loads(costs, devices, limits, micro_batches);
    for (size_t s = 0; s < loads.size(); ++s) {
      const double height = static_cast<double>(loads[s].peak()) / capacities[s];
      largest = std::max(largest, height);
      smallest = std::min(smallest, height);
    }
    best = std::min(best, std::tuple{largest, -smallest, ends});
    found.ratio = std::min(found.ratio, largest / smallest);
  }
  found.ends = std::get<2>(best);
  return found;
}

TEST(Split, AgreesWithExhaustiveSearch) {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1500; ++round) {
    const int blocks = 1 + static_cast<int>(random() % 9);
    const int stages = 1 + static_cast<int>(random() % static_cast<uint64_t>(std::min(blocks, 4)));
    const int micro_batches = 1 + static_cast<int>(random() % 5);
    const auto costs = random_costs(random, blocks, round % 2 == 0);
    std::vector<double> capacities(static_cast<size_t>(stages), 1.0);
    if (random() % 3 == 0) {
      for (auto& capacity : capacities) capacity = static_cast<double>(1 << random() % 3);
    }
    SCOPED_TRACE(fmt::format("seed {} round {}: {} blocks, {} stages, {} micro-batches", seed, round, blocks, stages,
                             micro_batches));
    const Found found = by_exhaustion(costs, capacities, micro_batches);
    ASSERT_EQ(split(costs, capacities, micro_batches), found.ends);
    const auto even =
        most_even_split({.costs = costs, .end = blocks, .capacities = capacities, .micro_batches = micro_batches});
    ASSERT_TRUE(even);
    ASSERT_DOUBLE_EQ(even->ratio, found.ratio);
  }
}

}  // namespace
}  // namespace lockstep
