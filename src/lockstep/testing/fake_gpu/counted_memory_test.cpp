// tensor/device_memory of GPUs, whose tensors LibTorch's own allocator gives.
#include <thread>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/devices.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/fake_group.h"

namespace lockstep {
namespace {

class CountedGpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    FakeGpu::install(4);
    use_cuda_library(&fake_cuda_api());
    (void)require_cuda_library();
  }
  void TearDown() override { use_cuda_library(nullptr); }

  static Tensor make(int64_t bytes) { return at::empty({bytes}, at::device(FakeGpu::device(3)).dtype(at::kByte)); }
};

TEST_F(CountedGpuMemory, KnowsUsesAndPhasesInEveryThread) {
  const auto gpu = Devices::one(FakeGpu::name(3)).blocks.front();
  const OnDevice scope(gpu);
  memory_stands_at(MemoryPhase::kBackward, "layer 7");
  Tensor gradients, activations;
  {
    const UsedFor use(MemoryUse::kGradients);
    gradients = make(1000);
  }
  std::thread([&] {
    activations = make(512);
  }).join();  // as autograd's backward does it, of what the device belongs to
  const MemoryFigures found = gpu->figures();
  EXPECT_EQ(found.alive, 1024 + 512);
  EXPECT_EQ(found.by_use[static_cast<size_t>(MemoryUse::kGradients)], 1024);
  EXPECT_EQ(found.by_use[static_cast<size_t>(MemoryUse::kActivations)], 512);
  EXPECT_EQ(found.peak_phase(), MemoryPhase::kBackward);
  EXPECT_EQ(found.peak().at, "layer 7");
  EXPECT_EQ(gpu->alive_bytes(), gpu_memory(FakeGpu::name(3)).allocated_bytes);
  EXPECT_EQ(DeviceMemory::of(gradients), gpu);
  gradients = activations = Tensor();
  EXPECT_EQ(gpu->alive_bytes(), 0);
}

TEST_F(CountedGpuMemory, FreesWhatIsOlderThanTheCount) {
  Tensor before = make(4096);
  const auto gpu = Devices::one(FakeGpu::name(3)).blocks.front();
  before = Tensor();
  EXPECT_EQ(gpu->alive_bytes(), 0);
}

TEST_F(CountedGpuMemory, AttentionMakesNoPlanForEveryShape) { EXPECT_FALSE(at::globalContext().userEnabledCuDNNSDP()); }

}  // namespace
}  // namespace lockstep
