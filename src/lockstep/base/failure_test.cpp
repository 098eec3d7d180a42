#include "lockstep/base/failure.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Failure, OfLibrariesIsNoBugWhereTheCauseIsKnown) {
  const auto code = [](const char* words) { return describe_failure(std::runtime_error(words)).code; };
  EXPECT_EQ(code("CUDA out of memory. Tried to allocate 2.00 GiB"), ExitCode::kMemory);
  EXPECT_EQ(code("cumsum_cuda_kernel does not have a deterministic implementation, but you set …"), ExitCode::kUsage);
  EXPECT_EQ(code("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might …"),
            ExitCode::kCommunication);
  EXPECT_EQ(code("something else"), ExitCode::kInternal);
}

}  // namespace
}  // namespace lockstep
