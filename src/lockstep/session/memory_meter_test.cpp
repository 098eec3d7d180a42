#include "lockstep/session/memory_meter.h"

#include <cstring>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "lockstep/comm/backend_solo.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/watch/memory_growth.h"

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

Job alone() {
  Job job;
  job.comm.control = std::make_unique<Communicator>(World{}, make_solo_backend("cpu"));
  return job;
}

class MemoryMeterTest : public testing::Test {
 protected:
  Tensor make(int64_t mib, MemoryUse use) const {
    const OnDevice there(devices_.blocks.front());
    const UsedFor what(use);
    return at::empty({mib * kMib / 4});
  }
  void stand_at(MemoryPhase phase, const char* block) const {
    const OnDevice there(devices_.blocks.front());
    memory_stands_at(phase, block);
  }
  static const DeviceAccount& first(const MemoryAccount& account) { return account.devices.at(0); }

  Job job_ = alone();
  Devices devices_ = Devices::virtual_ones(1, 1000 * kMib);
};

TEST_F(MemoryMeterTest, TellsThePeaksSinceTheStartAndSinceTheLastOne) {
  stand_at(MemoryPhase::kLoad, "embed");
  const Tensor weights = make(8, MemoryUse::kParams);
  stand_at(MemoryPhase::kForward, "a trial");
  make(100, MemoryUse::kActivations);  // while a batch size was looked for
  MemoryMeter meter(job_, devices_, 0, {});

  stand_at(MemoryPhase::kBackward, "layers.1");
  make(4, MemoryUse::kActivations);
  const MemoryMeasured one = meter.measure("2 rows");
  stand_at(MemoryPhase::kBackward, "layers.0");
  make(2, MemoryUse::kLogits);
  const MemoryMeasured two = meter.measure("3 rows");

  ASSERT_EQ(two.ranks.size(), 1U);
  const DeviceAccount& whole = first(two.ranks[0].since_start);
  EXPECT_EQ(whole.name, "virtual:0");
  EXPECT_EQ(whole.capacity, 1000 * kMib);
  EXPECT_EQ(whole.alive, 8 * kMib);
  EXPECT_EQ(whole.find("load")->bytes, 8 * kMib);
  EXPECT_EQ(whole.peak_bytes(), 12 * kMib);
  EXPECT_EQ(whole.peak()->phase, "backward");
  EXPECT_EQ(whole.peak()->at, "layers.1");
  EXPECT_EQ(whole.peak()->by_use, (BytesOfUses{{"parameters", 8 * kMib}, {"activations", 4 * kMib}}));
  EXPECT_EQ(first(one.ranks[0].since_last).peak_bytes(), 12 * kMib);
  EXPECT_EQ(first(two.ranks[0].since_last).peak_bytes(), 10 * kMib);
  EXPECT_EQ(first(two.ranks[0].since_last).find("load"), nullptr);
  EXPECT_EQ(two.ranks[0].since_start.batch, "3 rows");
  ASSERT_TRUE(two.ranks[0].since_start.host);
  EXPECT_EQ(two.ranks[0].since_start.host->name, "cpu");
  EXPECT_GT(two.ranks[0].idle_bytes, 0);
}

TEST_F(MemoryMeterTest, PredictsTheProcessAsWhatIsBesideTensorsAndTheForecast) {
  MemoryAccount forecast;
  forecast.devices = {{.name = "a", .phases = {{"load", 7 * kMib, {}, ""}}},
                      {.name = "b", .phases = {{"step", 5 * kMib, {}, ""}}}};
  MemoryMeter meter(job_, devices_, 0, forecast);
  const RankMemory rank = meter.measure("").ranks.at(0);
  EXPECT_EQ(rank.predicted_bytes(forecast), rank.idle_bytes + 12 * kMib);
  EXPECT_EQ(rank.predicted_bytes({}), 0);
  EXPECT_GE(rank.peak_bytes(), rank.resident_bytes);
}

TEST_F(MemoryMeterTest, ALeakOfTensorsIsNamed) {
  MemoryMeter meter(job_, devices_, 0, {});
  MemoryGrowth growth;
  std::vector<Tensor> kept;
  std::vector<std::string> told;
  for (int64_t step = 1; step <= 30; ++step) {
    stand_at(MemoryPhase::kForward, "layers.0");
    kept.push_back(make(2, MemoryUse::kGathered));
    stand_at(MemoryPhase::kStep, "head");
    MemoryMeasured memory = meter.measure("2 rows");
    memory.step = step;
    for (const auto& text : growth.add(memory)) told.push_back(text);
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("gathered on virtual:0 of rank 0, in the peak of forward too, 2.00 MiB more a step"),
            std::string::npos)
      << told[0];
}

TEST_F(MemoryMeterTest, OfSharedMemoryARankHoldsItsPartAlone) {
  const auto size = static_cast<size_t>(64 * kMib);
  void* const there = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(there, MAP_FAILED);
  std::memset(there, 1, size);
  const RankMemory whole = MemoryMeter(job_, devices_, 0, {}).measure("").ranks.at(0);
  const RankMemory mine =
      MemoryMeter(job_, devices_, 0, {}, {.all = 64 * kMib, .of_this_rank = 16 * kMib}).measure("").ranks.at(0);
  ::munmap(there, size);
  EXPECT_NEAR(static_cast<double>(whole.resident_bytes - mine.resident_bytes), 48.0 * kMib, 4.0 * kMib);
  EXPECT_NEAR(static_cast<double>(mine.uncounted_bytes - whole.uncounted_bytes), 16.0 * kMib, 4.0 * kMib);
}

}  // namespace
}  // namespace lockstep
