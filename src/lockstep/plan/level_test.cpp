#include "lockstep/plan/level.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/plan/test_costs.h"

namespace lockstep {
namespace {

using Slices = std::vector<std::vector<StateSlice>>;

std::vector<BlockCost> movable_costs(const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  std::vector<BlockCost> costs;
  for (const auto& [state, movable] : sizes) costs.push_back({.block = "b", .state = state, .movable = movable});
  return costs;
}

TEST(Level, MovesWholeBlocksAndCutsOne) {
  const auto costs = movable_costs({{10, 20}, {10, 30}, {10, 20}, {10, 8}});
  const std::vector<int> devices{0, 0, 0, 1};
  const std::vector<DeviceLimit> limits{{0}, {1}};
  const Slices slices = level_movable(costs, devices, limits, {.quantum = 1});
  // 118 bytes together: 59 each. Device 0 gives 41: the block of 30 whole, then 11 of the first of 20.
  EXPECT_EQ(slices, (Slices{{{0, 0, 9}, {1, 9, 20}}, {{1, 0, 30}}, {{0, 0, 20}}, {{1, 0, 8}}}));
  const auto loads = device_loads(costs, devices, limits, 1, slices);
  EXPECT_EQ(loads[0].peak(), 59);
  EXPECT_EQ(loads[1].peak(), 59);
}

TEST(Level, CutsAtMultiplesOfTheQuantum) {
  const auto costs = movable_costs({{0, 100}, {0, 0}});
  const Slices slices =
      level_movable(costs, std::vector<int>{0, 1}, std::vector<DeviceLimit>{{0}, {1}}, {.quantum = 32});
  EXPECT_EQ(slices, (Slices{{{0, 0, 64}, {1, 64, 100}}, {}}));
}

TEST(Level, PoursOnlyOverFloorsThatAreLowEnough) {
  const auto costs = movable_costs({{100, 0}, {10, 40}, {20, 0}});
  const std::vector<DeviceLimit> limits{{0}, {1}, {2}};
  const Slices slices = level_movable(costs, std::vector<int>{0, 1, 2}, limits, {.quantum = 1});
  EXPECT_EQ(slices, (Slices{{}, {{1, 0, 25}, {2, 25, 40}}, {}})) << "35, 35, and nothing to the device of 100";
}

TEST(Level, StaysWithinTheLimitsAndFillsInProportionToThem) {
  const auto costs = movable_costs({{10, 60}, {10, 0}});
  const std::vector<DeviceLimit> limits{{0, 120}, {1, 40}};
  const Slices slices = level_movable(costs, std::vector<int>{0, 1}, limits, {.quantum = 1});
  EXPECT_EQ(slices, (Slices{{{0, 0, 50}, {1, 50, 60}}, {}})) << "60 of 120 and 20 of 40";
}

TEST(Level, LeavesWhatIsOnAnotherDevice) {
  const auto costs = movable_costs({{0, 100}, {0, 0}, {0, 70}});
  const std::vector<DeviceLimit> limits{{0}, {1}};
  const Slices slices = level_movable(costs, std::vector<int>{0, 1, kCpuDevice}, limits, {.quantum = 1});
  EXPECT_EQ(slices, (Slices{{{0, 0, 50}, {1, 50, 100}}, {}, {{kCpuDevice, 0, 70}}}));
}

/// The highest peak in parts of the capacities.
double height(const std::vector<DeviceLoad>& loads, const std::vector<double>& capacities) {
  double highest = 0;
  for (size_t d = 0; d < loads.size(); ++d) {
    highest = std::max(highest, static_cast<double>(loads[d].peak()) / capacities[d]);
  }
  return highest;
}

/// The lowest highest peak that any placement of the movable bytes can reach, on equal devices.
int64_t water_level(const std::vector<DeviceLoad>& loads) {
  int64_t total = 0, highest_floor = 0;
  for (const auto& load : loads) {
    total += load.movable;
    highest_floor = std::max(highest_floor, load.fixed);
  }
  for (int64_t level = 0;; ++level) {
    int64_t held = 0;
    for (const auto& load : loads) held += std::max<int64_t>(0, level - load.fixed);
    if (held >= total) return std::max(level, highest_floor);
  }
}

TEST(Level, ConservesBytesNeverRaisesTheHighestAndCutsFew) {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const auto blocks = 1 + random() % 30, count = 1 + random() % 6;
    const int64_t quantum = int64_t{1} << random() % 5;
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    auto costs = random_costs(random, static_cast<int>(blocks), true);
    std::vector<int> devices;
    std::vector<DeviceLimit> limits;
    for (auto& cost : costs) cost.movable *= 20;
    for (size_t i = 0; i < blocks; ++i) devices.push_back(static_cast<int>(random() % count));
    for (size_t d = 0; d < count; ++d) limits.push_back({.device = static_cast<int>(d)});
    if (round % 3 == 0) {
      for (auto& limit : limits) limit.bytes = 1000 * static_cast<int64_t>(1 + random() % 3);
    }
    const Slices slices = level_movable(costs, devices, limits, {.micro_batches = 3, .quantum = quantum});
    ASSERT_EQ(slices, level_movable(costs, devices, limits, {.micro_batches = 3, .quantum = quantum}));
    size_t cuts = 0;
    for (size_t i = 0; i < blocks; ++i) {
      int64_t end = 0;
      for (const StateSlice& slice : slices[i]) {
        ASSERT_EQ(slice.begin, end);
        ASSERT_EQ(slice.begin % quantum, 0);
        ASSERT_GT(slice.end, slice.begin);
        end = slice.end;
      }
      ASSERT_EQ(end, costs[i].movable);
      cuts += slices[i].empty() ? 0 : slices[i].size() - 1;
    }
    ASSERT_LT(cuts, count);
    const auto before = device_loads(costs, devices, limits, 3),
               after = device_loads(costs, devices, limits, 3, slices);
    const auto capacities = capacities_of(limits);
    ASSERT_LE(height(after, capacities), height(before, capacities));
    if (round % 3 != 0) {
      const auto slack = static_cast<int64_t>(count) * quantum;
      ASSERT_LE(height(after, capacities), static_cast<double>(water_level(before) + slack));
    }
  }
}

}  // namespace
}  // namespace lockstep
