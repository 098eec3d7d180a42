#include "lockstep/base/failure.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Failure, OfLibrariesIsNoBugWhereTheCauseIsKnown) {
  const auto code = [](const char* words) { return describe_failure(std::runtime_error(words)).code; };
  EXPECT_EQ(code("CUDA out of memory. Tried to allocate 2.00 GiB"), ExitCode::kMemory);
  EXPECT_EQ(code("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ExitCode::kMemory);
  const std::string nccl =
      "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error, NCCL version 2.28.9\nLast error:\n";
  for (const char* cause : {"Failed to CUDA calloc 6291456 bytes", "Cuda failure 2 'out of memory'"}) {
    EXPECT_EQ(code((nccl + cause).c_str()), ExitCode::kMemory) << cause;
  }
  EXPECT_EQ(code((nccl + "socketPollConnect: connect returned Connection refused").c_str()), ExitCode::kInternal);
  EXPECT_EQ(code("kernels of the GPU: adamw_bf16: CUDA error: an illegal memory access was encountered"),
            ExitCode::kCommunication);
  EXPECT_EQ(code("cumsum_cuda_kernel does not have a deterministic implementation, but you set …"), ExitCode::kUsage);
  EXPECT_EQ(code("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might …"),
            ExitCode::kCommunication);
  EXPECT_EQ(code("something else"), ExitCode::kInternal);
}

}  // namespace
}  // namespace lockstep
