#include "lockstep/comm/gpu_driver.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "lockstep/base/process.h"

namespace lockstep {
namespace {

/// As tests/stubs/cuda_driver.cpp answers.
GpuDriver asked(const char* behaviour) {
  ::setenv("LOCKSTEP_STUB_CUDA", behaviour, 1);
  return GpuDriver::ask(own_executable().parent_path() / "libstub_cuda_driver.so");
}

TEST(GpuDriver, NamesTheGpusThatItShows) {
  const GpuDriver driver = asked("2");
  EXPECT_TRUE(driver.there);
  EXPECT_EQ(driver.failure, "");
  EXPECT_EQ(driver.uuids, (std::vector<std::string>{"GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0",
                                                    "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1"}));
}

TEST(GpuDriver, ShowsNoneWithoutThatBeingAFailure) {
  const GpuDriver driver = asked("0");
  EXPECT_TRUE(driver.there);
  EXPECT_EQ(driver.failure, "");
  EXPECT_EQ(driver.count(), 0);
}

TEST(GpuDriver, SaysWhyItDoesNotRun) {
  EXPECT_EQ(asked("error 802").failure, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (system not yet initialized)");
}

TEST(GpuDriver, MayBeMissing) {
  const GpuDriver driver = GpuDriver::ask("libcuda_that_is_not_there.so.1");
  EXPECT_FALSE(driver.there);
  EXPECT_EQ(driver.failure, "");
}

}  // namespace
}  // namespace lockstep
