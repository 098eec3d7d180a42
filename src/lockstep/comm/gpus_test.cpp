#include "lockstep/comm/gpus.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

int listed(const std::string& names) { return visible_gpus(Env({{"CUDA_VISIBLE_DEVICES", names}})); }

TEST(Gpus, AreThoseThatTheEnvironmentLists) {
  EXPECT_EQ(listed("0,3"), 2);
  EXPECT_EQ(listed("GPU-5b0c,GPU-77aa,"), 2);
  EXPECT_EQ(listed(""), 0);
  EXPECT_EQ(listed("1,-1,2"), 1) << "CUDA reads no further than -1";
}

TEST(Gpus, NoneIsTakenWhereNoneIsWantedOrSeen) {
  const Env none(std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(device_of("auto", 0, none), "cpu");
  EXPECT_EQ(device_of("cpu", 3, Env(std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", "0"}})), "cpu");
}

}  // namespace
}  // namespace lockstep
