#include "lockstep/session/room.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr const char* kMeminfo = "MemTotal: 16777216 kB\nMemAvailable: 10485760 kB\n";  // 16 and 10 GiB

MemoryForecast forecast_of(int64_t device_bytes, int64_t host_bytes) {
  MemoryForecast forecast;
  const auto step = static_cast<size_t>(MemoryPhase::kStep);
  forecast.devices.push_back({.name = "cpu"});
  forecast.devices[0].figures.phases.at(step).bytes = device_bytes;
  forecast.host.figures.phases.at(step).bytes = host_bytes;
  return forecast;
}

TEST(MachineRoom, AllRanksOfAMachineTakeOfItsMemory) {
  const MachineMemory machine = machine_memory_from(kMeminfo, -1, -1);
  EXPECT_TRUE(room_for(forecast_of(5 * kGiB, 0), true, 2, machine).fits());
  const MachineRoom lacks = room_for(forecast_of(5 * kGiB + 1, 0), true, 2, machine);
  EXPECT_FALSE(lacks.fits());
  EXPECT_EQ(lacks.text(), "2 ranks need 5.00 GiB each, and 10.00 GiB of this machine's 16.00 GiB are free");
  EXPECT_FALSE(room_for(forecast_of(4 * kGiB, 2 * kGiB), true, 2, machine).fits())
      << "what is offloaded stands there too";
  MemoryForecast with_rows = forecast_of(5 * kGiB, 0);
  with_rows.waiting_bytes = 1;
  EXPECT_FALSE(room_for(with_rows, true, 2, machine).fits()) << "rows that are ready wait there too";
  MemoryForecast with_process = forecast_of(5 * kGiB, 0);
  with_process.process_bytes = 1;
  EXPECT_FALSE(room_for(with_process, true, 2, machine).fits()) << "and what the process holds beside";
}

TEST(MachineRoom, OnGpusOnlyWhatIsOnTheHostCounts) {
  const MachineMemory machine = machine_memory_from(kMeminfo, -1, -1);
  EXPECT_TRUE(room_for(forecast_of(80 * kGiB, kGiB), false, 8, machine).fits());
  EXPECT_FALSE(room_for(forecast_of(kGiB, 6 * kGiB), false, 2, machine).fits());
}

TEST(MachineRoom, AControlGroupsLimitIsWhatThereIs) {
  const MachineMemory machine = machine_memory_from(kMeminfo, 4 * kGiB, kGiB);
  const MachineRoom room = room_for(forecast_of(4 * kGiB, 0), true, 1, machine);
  EXPECT_FALSE(room.fits());
  EXPECT_EQ(room.text(),
            "one rank needs 4.00 GiB, and 3.00 GiB of this machine's 4.00 GiB are free (limited by the control group)");
}

TEST(MachineRoom, AGpuThatOthersUseIsNamedBeforeAnythingIsLoaded) {
  MemoryForecast forecast = forecast_of(30 * kGiB, 0);
  forecast.devices[0].name = "cuda:0";
  forecast.devices.push_back(forecast.devices[0]);
  forecast.devices[1].name = "cuda:1";
  std::vector<std::string> asked;
  const auto gpus = [&](int64_t free_on_second) {
    return [&asked, free_on_second](const std::string& device) {
      asked.push_back(device);
      return GpuMemory{.free_bytes = device == "cuda:1" ? free_on_second : 70 * kGiB, .total_bytes = 80 * kGiB};
    };
  };
  require_gpu_room(forecast, gpus(30 * kGiB));
  EXPECT_EQ(asked, (std::vector<std::string>{"cuda:0", "cuda:1"}));
  try {
    require_gpu_room(forecast, gpus(20 * kGiB));
    FAIL() << "30 GiB do not fit in 20";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kMemory);
    EXPECT_EQ(error.message(),
              "the job does not fit cuda:1: a rank needs 30.00 GiB there at its peak, and 20.00 GiB of its 80.00 GiB "
              "are free");
  }
  asked.clear();
  require_gpu_room(forecast_of(90 * kGiB, 0), gpus(0));  // the host is no GPU
  EXPECT_TRUE(asked.empty());
}

TEST(MachineRoom, WhereTheKernelDoesNotTellNothingIsRefused) {
  EXPECT_TRUE(room_for(forecast_of(80 * kGiB, 0), true, 8, machine_memory_from("", -1, -1)).fits());
}

}  // namespace
}  // namespace lockstep
