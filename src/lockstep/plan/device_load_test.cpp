#include "lockstep/plan/device_load.h"

#include <gtest/gtest.h>

#include "lockstep/plan/test_costs.h"

namespace lockstep {
namespace {

const std::vector<DeviceLimit> kTwo{{.device = 0}, {.device = 1, .bytes = 100}};

TEST(DeviceLoad, AddsStateOfAllAndWorkOfTheHungriest) {
  const std::vector<BlockCost> costs{{.block = "a", .state = 10, .movable = 20, .saved = 1, .work = 5},
                                     {.block = "b", .state = 7, .movable = 14, .saved = 2, .work = 9},
                                     {.block = "c", .state = 3, .movable = 6, .saved = 4, .work = 1}};
  const auto loads = device_loads(costs, std::vector<int>{0, 0, 1}, kTwo, 1);
  EXPECT_EQ(loads, (std::vector<DeviceLoad>{{0, 10 + 7 + 1 + 2 + 9, 34}, {1, 3 + 4 + 1, 6}}));
}

TEST(DeviceLoad, KeepsMoreMicroBatchesInEarlierStages) {
  const std::vector<BlockCost> costs{
      {.block = "a", .saved = 100}, {.block = "b", .saved = 10}, {.block = "c", .saved = 1}};
  const std::vector<DeviceLimit> three{{0}, {1}, {2}};
  const auto peaks = [&](int micro_batches) {
    std::vector<int64_t> out;
    for (const auto& load : device_loads(costs, std::vector<int>{0, 1, 2}, three, micro_batches)) {
      out.push_back(load.peak());
    }
    return out;
  };
  EXPECT_EQ(peaks(8), (std::vector<int64_t>{300, 20, 1}));
  EXPECT_EQ(peaks(2), (std::vector<int64_t>{200, 20, 1}));
  EXPECT_EQ(peaks(1), (std::vector<int64_t>{100, 10, 1}));
}

TEST(DeviceLoad, ADeviceThatIsComeBackToRunsTwoStages) {
  EXPECT_EQ(stages_of(std::vector<int>{0, 0, 1, 0}), (std::vector<int>{0, 0, 1, 2}));
  const std::vector<BlockCost> costs{
      {.block = "a", .saved = 100}, {.block = "b", .saved = 10}, {.block = "c", .saved = 1}};
  const auto loads = device_loads(costs, std::vector<int>{0, 1, 0}, kTwo, 8);
  EXPECT_EQ(loads[0].peak(), 301) << "stage 0 holds three micro-batches, stage 2 one";
}

TEST(DeviceLoad, ATiedWeightCostsOnceWhereItIsAwayFromItsOwner) {
  std::vector<BlockCost> costs = plain_costs({10, 1, 1, 1});
  for (const size_t reader : {2U, 3U}) {
    costs[reader].tied = 6;
    costs[reader].tied_to = 0;
  }
  EXPECT_EQ(device_loads(costs, std::vector<int>{0, 0, 0, 0}, kTwo, 1)[0].fixed, 13);
  EXPECT_EQ(device_loads(costs, std::vector<int>{0, 0, 1, 1}, kTwo, 1)[1].fixed, 2 + 6) << "two readers share one copy";
}

TEST(DeviceLoad, CountsMovableBytesWhereTheirPiecesStand) {
  const std::vector<BlockCost> costs{{.block = "a", .state = 1, .movable = 10},
                                     {.block = "b", .state = 2, .movable = 4}};
  const std::vector<std::vector<StateSlice>> slices{{{0, 0, 7}, {1, 7, 10}}, {{1, 0, 4}}};
  EXPECT_EQ(device_loads(costs, std::vector<int>{0, 1}, kTwo, 1, slices),
            (std::vector<DeviceLoad>{{0, 1, 7}, {1, 2, 7}}));
}

TEST(DeviceLoad, TellsWhatADeviceLacks) {
  const std::vector<DeviceLoad> loads{{0, int64_t{3} << 20, 0}, {1, 90, 38}};
  EXPECT_FALSE(fits(loads, kTwo));
  EXPECT_EQ(load_table(loads, kTwo),
            "  device         needs         has\n"
            "  0           3.00 MiB           -\n"
            "  1              128 B       100 B  lacks 28 B");
}

TEST(DeviceLoad, ADeviceWithoutALimitIsListedBehindTheOthers) {
  const auto loads = device_loads(plain_costs({5, 6}), std::vector<int>{kCpuDevice, 1}, kTwo, 1);
  EXPECT_EQ(loads, (std::vector<DeviceLoad>{{0, 0, 0}, {1, 6, 0}, {kCpuDevice, 5, 0}}));
}

}  // namespace
}  // namespace lockstep
