// Included by a test program that runs on fake GPUs: they are installed before its first test, since LibTorch's autograd asks
// once how many devices there are.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/testing/fake_gpu/fake_gpu.h"

namespace lockstep {

class FakeGpuEnvironment final : public testing::Environment {
 public:
  void SetUp() override { FakeGpu::install(4); }
};

[[maybe_unused]] inline const testing::Environment* const kFakeGpus =
    testing::AddGlobalTestEnvironment(new FakeGpuEnvironment);

}  // namespace lockstep
