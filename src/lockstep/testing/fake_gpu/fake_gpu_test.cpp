#include "lockstep/testing/fake_gpu/fake_gpu.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class FakeGpuTest : public testing::Test {
 protected:
  void SetUp() override { FakeGpu::install(4); }
  static at::TensorOptions on(int device) { return at::device(FakeGpu::device(device)); }
  static c10::impl::VirtualGuardImpl streams() { return c10::impl::VirtualGuardImpl(FakeGpu::device(0).type()); }
  static c10::Stream other_stream(int device) { return streams().getStreamFromGlobalPool(FakeGpu::device(device)); }
  static void synchronize(int device) { streams().synchronizeDevice(static_cast<c10::DeviceIndex>(device)); }
};

TEST_F(FakeGpuTest, ComputesWhatTheCpuComputes) {
  const at::Tensor x = at::randn({4, 8}), w = at::randn({8, 3});
  const at::Tensor y = at::matmul(x.to(FakeGpu::device(1)), w.to(FakeGpu::device(1))).relu().sum(0);
  EXPECT_EQ(y.device(), FakeGpu::device(1));
  EXPECT_TRUE(y.cpu().equal(at::matmul(x, w).relu().sum(0)));
}

TEST_F(FakeGpuTest, HasGradients) {
  const at::Tensor host = at::randn({2, 3, 5, 8});
  const auto grad = [&](const at::Tensor& on_device) {
    const at::Tensor x = on_device.detach().requires_grad_(true);
    at::scaled_dot_product_attention(x, x, x).pow(2).sum().backward();
    return x.grad().cpu();
  };
  EXPECT_TRUE(grad(host.to(FakeGpu::device(0))).allclose(grad(host), 1e-5, 1e-6));
}

TEST_F(FakeGpuTest, CountsWhatTheHostWaitsFor) {
  const at::Tensor x = at::ones({4}, on(0));
  const auto before = FakeGpu::counts();
  const at::Tensor y = x.add(1);
  EXPECT_EQ(FakeGpu::counts().host_waits, before.host_waits);
  EXPECT_GT(FakeGpu::counts().launches, before.launches);
  EXPECT_EQ(y.sum().item<float>(), 8);
  EXPECT_EQ(FakeGpu::counts().host_waits, before.host_waits + 1);
}

TEST_F(FakeGpuTest, ReturnsBeforeACallIsDone) {
  const at::Tensor host = at::empty({1}, at::TensorOptions().pinned_memory(true));
  host.fill_(1);
  {
    const FakeGpu::Hold hold(FakeGpu::Hold::Which::kDefault);
    const at::Tensor x = at::full({1}, 7.0, on(0));
    host.copy_(x, /*non_blocking=*/true);
    EXPECT_EQ(host.item<float>(), 1);
  }
  synchronize(0);
  EXPECT_EQ(host.item<float>(), 7);
}

TEST_F(FakeGpuTest, ReadsMemoryThatIsNotPinnedAtOnceAndIsNotDoneWithItThen) {
  const at::Tensor x = at::zeros({4}, on(0)), host = at::ones({4});
  FakeGpu::delay(50ms, 0us);
  const auto waits = FakeGpu::counts().host_waits;
  x.copy_(host, /*non_blocking=*/true);
  EXPECT_FALSE(GpuMoment::now(FakeGpu::name(0)).over());
  EXPECT_EQ(FakeGpu::counts().host_waits, waits + 1) << "for what was queued before";
  host.fill_(7);
  FakeGpu::delay(0us, 0us);
  EXPECT_EQ(x.sum().item<float>(), 4);
}

TEST_F(FakeGpuTest, RefusesTwoDevicesInOneOp) {
  const at::Tensor x = at::ones({4}, on(0)), y = at::ones({4}, on(1)), host = at::ones({4});
  EXPECT_THROW(at::add(x, y), c10::Error);
  EXPECT_THROW(at::add(x, host), c10::Error);
  EXPECT_EQ(at::add(x, at::ones({})).sum().item<float>(), 8);
}

TEST_F(FakeGpuTest, ShowsAMissingWaitBetweenStreams) {
  const c10::Stream side = other_stream(0);
  const at::Tensor made = at::full({8}, 1.0, on(0));
  synchronize(0);
  at::Tensor read_late;
  {
    const FakeGpu::Hold hold(FakeGpu::Hold::Which::kOthers);
    const auto on_side = [&] {
      const c10::StreamGuard guard(side);
      made.fill_(3);
    };
    on_side();
    EXPECT_EQ(made.sum().item<float>(), 8) << "not waited for";
    c10::Event done(FakeGpu::device(0).type());
    done.record(side);
    done.block(streams().getStream(FakeGpu::device(0)));
    read_late = made.sum();
  }
  EXPECT_EQ(read_late.item<float>(), 24);
}

TEST_F(FakeGpuTest, ShowsMemoryThatWasFreedTooEarly) {
  const c10::Stream side = other_stream(0);
  const auto sum_after_free = [&](bool told) {
    at::Tensor x = at::full({256}, 1.0, on(0)), out;
    synchronize(0);
    {
      const FakeGpu::Hold hold(FakeGpu::Hold::Which::kOthers);
      {
        const c10::StreamGuard guard(side);
        out = x.add(1).sum();
      }
      if (told) x.record_stream(side);
      x = at::Tensor();
      streams().synchronizeStream(streams().getStream(FakeGpu::device(0)));
    }
    const c10::StreamGuard guard(side);
    return out.item<float>();
  };
  EXPECT_TRUE(std::isnan(sum_after_free(false)));
  EXPECT_EQ(sum_after_free(true), 512);
}

TEST_F(FakeGpuTest, GivesFreedMemoryAgain) {
  const auto step = [] { return at::full({1024}, 1, on(1)).mul(2).sum().item<float>(); };
  EXPECT_EQ(step(), 2048);
  const auto before = FakeGpu::counts();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), 2048);
  EXPECT_EQ(FakeGpu::counts().system_allocations, before.system_allocations);
  EXPECT_THROW(at::empty({int64_t{1} << 40}, on(1)), c10::OutOfMemoryError);
}

TEST_F(FakeGpuTest, BeginsOnDevice0InEveryThread) {
  const c10::DeviceGuard guard(FakeGpu::device(1));
  c10::Device seen = FakeGpu::device(1);
  std::thread([&] { seen = at::empty({1}, at::device(c10::DeviceType::PrivateUse1)).device(); }).join();
  EXPECT_EQ(seen, FakeGpu::device(0));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take the fault for one of theirs
using FakeGpuDeathTest = FakeGpuTest;

TEST_F(FakeGpuDeathTest, KnowsNoMemoryBeforeItIsStarted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process in which nothing has run
  EXPECT_EXIT(
      {
        bool refused = false;
        try {
          c10::getDeviceAllocator(FakeGpu::device(1).type())->getDeviceStats(1);
        } catch (const c10::Error&) {
          refused = true;
        }
        const GpuMemory memory = gpu_memory(FakeGpu::name(1));
        std::_Exit(refused && memory.total_bytes > 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FakeGpuDeathTest, DiesWhenTheHostReadsItsMemory) {
  const at::Tensor x = at::ones({4}, on(0));
  EXPECT_EXIT(
      {
        const volatile float read = *x.const_data_ptr<float>();
        std::_Exit(read > 0 ? 0 : 1);
      },
      testing::KilledBySignal(SIGSEGV), "");
}
#endif

}  // namespace
}  // namespace lockstep
