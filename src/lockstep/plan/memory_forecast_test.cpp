#include "lockstep/plan/memory_forecast.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

MemoryPeak& phase(MemoryFigures& figures, MemoryPhase phase) { return figures.phases.at(static_cast<size_t>(phase)); }
int64_t& use(BytesByUse& by_use, MemoryUse use) { return by_use.at(static_cast<size_t>(use)); }

/// Loads `state` MiB of parameters, and needs `more` MiB of activations on the way back.
DeviceForecast device(std::string name, int64_t state, int64_t more, int64_t capacity = 0) {
  DeviceForecast out{.name = std::move(name), .capacity = capacity * kMib, .figures = {}};
  out.figures.alive = state * kMib;
  use(out.figures.by_use, MemoryUse::kParams) = state * kMib;
  phase(out.figures, MemoryPhase::kLoad) = {state * kMib, out.figures.by_use, "embed"};
  MemoryPeak& back = phase(out.figures, MemoryPhase::kBackward);
  back = {(state + more) * kMib, out.figures.by_use, "layers.3"};
  use(back.by_use, MemoryUse::kActivations) = more * kMib;
  return out;
}

MemoryForecast two_devices() {
  return {.devices = {device("device 0", 100, 30, 200), device("device 1", 80, 20, 200)},
          .host = device("host", 10, 0),
          .context_bytes = 0,
          .batch = "2 micro-batches of 3 rows up to 58 tokens"};
}

TEST(MemoryForecast, PrintsADeviceALineByUseAndByPhase) {
  EXPECT_EQ(two_devices().print(),
            "memory of a rank, for 2 micro-batches of 3 rows up to 58 tokens\n"
            "  at its peak       bytes  parameters  activations  when\n"
            "  device 0     130.00 MiB  100.00 MiB    30.00 MiB  backward, layers.3\n"
            "  device 1     100.00 MiB   80.00 MiB    20.00 MiB  backward, layers.3\n"
            "  host          10.00 MiB   10.00 MiB            -  load, embed\n"
            "\n"
            "  by phase        load    backward         has\n"
            "  device 0  100.00 MiB  130.00 MiB  200.00 MiB  fits, 35% free\n"
            "  device 1   80.00 MiB  100.00 MiB  200.00 MiB  fits, 50% free\n"
            "  host       10.00 MiB   10.00 MiB           -\n"
            "  most over least of the devices: 1.300\n");
}

TEST(MemoryForecast, PrintsNothingOfAnEmptyOne) {
  EXPECT_EQ(MemoryForecast{}.print(), "");
  EXPECT_TRUE(MemoryForecast{}.fits());
  EXPECT_TRUE(MemoryForecast{}.account().empty());
  EXPECT_EQ(MemoryForecast{}.imbalance(), 1);
}

TEST(MemoryForecast, IsAsUnevenAsItsFullestDeviceOverItsEmptiest) {
  EXPECT_DOUBLE_EQ(two_devices().imbalance(), 1.3);  // the host is none of them
  EXPECT_EQ(two_devices().peak(), 130 * kMib);
  EXPECT_DOUBLE_EQ(MemoryForecast{.devices = {device("cpu", 7, 1)}}.imbalance(), 1);
  EXPECT_TRUE(std::isinf(MemoryForecast{.devices = {device("a", 7, 1), device("b", 0, 0)}}.imbalance()));
}

TEST(MemoryForecast, FitsWithTheContextOfTheDeviceAndOnTheHostWithout) {
  MemoryForecast forecast = two_devices();
  forecast.host.capacity = 10 * kMib;
  EXPECT_TRUE(forecast.fits());
  forecast.context_bytes = 70 * kMib;
  EXPECT_TRUE(forecast.fits());
  forecast.context_bytes += 1;
  EXPECT_FALSE(forecast.fits());
  EXPECT_NE(forecast.print().find("does not fit: lacks 1 B"), std::string::npos) << forecast.print();
  forecast.context_bytes = 0;
  forecast.host.capacity -= 1;
  EXPECT_FALSE(forecast.fits());
}

TEST(MemoryForecast, CountsRowsThatWaitWhereTheHostIs) {
  MemoryForecast forecast = two_devices();
  forecast.host.capacity = 15 * kMib;
  forecast.waiting_bytes = 5 * kMib;
  EXPECT_TRUE(forecast.fits());
  EXPECT_NE(forecast.print().find("beside it in the host's memory: 5.00 MiB of rows that are ready and wait"),
            std::string::npos);
  EXPECT_EQ(forecast.needed(), forecast.peak()) << "of devices";
  forecast.host.capacity -= 1;
  EXPECT_FALSE(forecast.fits());
  forecast.host = {};
  forecast.devices.pop_back();
  forecast.devices[0].name = "cpu";
  forecast.context_bytes = 700 * kMib;
  EXPECT_EQ(forecast.needed(), forecast.peak() + 5 * kMib) << "the host itself has no context, and the rows";
  forecast.process_bytes = 3 * kMib;
  EXPECT_EQ(forecast.needed(), forecast.peak() + 8 * kMib);
  forecast.devices[0].capacity = forecast.needed();
  EXPECT_TRUE(forecast.fits());
  forecast.devices[0].capacity -= 1;
  EXPECT_FALSE(forecast.fits());
  EXPECT_NE(forecast.print().find("beside it in the process: 3.00 MiB that no tensor holds"), std::string::npos);
}

TEST(MemoryForecast, IsReadBackFromItsJson) {
  const MemoryForecast forecast = two_devices();
  const Json written = forecast.as_json();
  const Json& first = written.at("devices").at(0);
  EXPECT_EQ(first.at("name"), "device 0");
  EXPECT_EQ(first.at("peak"), 130 * kMib);
  EXPECT_EQ(first.at("peak_phase"), "backward");
  EXPECT_EQ(first.at("peak_at"), "layers.3");
  EXPECT_EQ(first.at("capacity"), 200 * kMib);
  EXPECT_EQ(first.at("by_use"), Json({{"parameters", 100 * kMib}, {"activations", 30 * kMib}}));
  EXPECT_EQ(first.at("phases").at("load").at("bytes"), 100 * kMib);
  EXPECT_EQ(written.at("host").at("phases").at("load").at("at"), "embed");
  EXPECT_EQ(written.at("batch"), "2 micro-batches of 3 rows up to 58 tokens");

  const MemoryAccount read = memory_account_from(written);
  EXPECT_EQ(as_json(read), written);
  ASSERT_EQ(read.everything().size(), 3U);
  EXPECT_EQ(read.everything().back()->name, "host");
  EXPECT_EQ(read.devices.front().peak()->at, "layers.3");
  EXPECT_TRUE(memory_account_from(Json("nothing")).empty());
}

}  // namespace
}  // namespace lockstep
