#include "lockstep/comm/gpus.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

GpuDriver showing(std::vector<std::string> uuids) { return {.there = true, .failure = "", .uuids = std::move(uuids)}; }

TEST(Gpus, NoneIsTakenWhereNoneIsWantedOrSeen) {
  EXPECT_EQ(device_of("auto", 0, {}), "cpu");
  EXPECT_EQ(device_of("auto", 0, showing({})), "cpu");
  EXPECT_EQ(device_of("cpu", 3, showing({"GPU-a"})), "cpu");
}

TEST(Gpus, ADriverThatDoesNotRunIsNotPassedOverInSilence) {
  const GpuDriver broken{
      .there = true, .failure = "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (system not yet initialized)", .uuids = {}};
  for (const char* wanted : {"auto", "cuda"}) {
    try {
      (void)device_of(wanted, 0, broken);
      FAIL() << wanted;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("CUDA_ERROR_SYSTEM_NOT_READY"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(device_of("cpu", 0, broken), "cpu");
}

TEST(Gpus, TwoRanksOfANodeMayNotDriveOne) {
  run_ranks(3, [](Rank& rank) {
    const GpuDriver own = showing({"GPU-" + std::to_string(rank.id())}), same = showing({"GPU-same"});
    EXPECT_NO_THROW(require_own_gpus(rank.control(), 0, "cuda:0", own)) << "each was shown its own";
    EXPECT_NO_THROW(require_own_gpus(rank.control(), rank.id(), "cuda:0", same)) << "of three nodes";
    EXPECT_NO_THROW(require_own_gpus(rank.control(), 0, "cpu", same));
    try {
      require_own_gpus(rank.control(), 0, "cuda:0", same);
      FAIL();
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("ranks 0 and 1 drive the same GPU (GPU-same)"), std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
