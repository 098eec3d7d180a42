#include <chrono>
#include <memory>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/fake_group.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// comm/backend_device, here since launchers in comm's tests fork, which a process of many threads should not. Two ranks on the third and the fourth GPU: the first one must stay untouched.
class DeviceBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    FakeGpu::install(4);
    FakeGpu::forget_started();
    use_cuda_library(&fake_cuda_api());
  }
  void TearDown() override { use_cuda_library(nullptr); }

  static int gpu(int rank) { return 2 + rank; }
  static RanksOptions on_gpus(Clock::duration patience = 60s) {
    return {.patience = patience, .device = [](int rank) { return FakeGpu::name(gpu(rank)); }};
  }
  static Tensor value(const Rank& rank, double number, int64_t numel = 8) {
    return at::full({numel}, number, at::device(FakeGpu::device(gpu(rank.id()))).dtype(at::kFloat));
  }
  static CallState state_of_last(Rank& rank) { return rank.data().ring().last(1).at(0).state; }
};

TEST_F(DeviceBackendTest, SumsInRankOrderAndCarriesHostTensors) {
  run_ranks(
      2,
      [&](Rank& rank) {
        const Tensor sum = value(rank, 5, 4);
        rank.data().reduce_scatter(sum, value(rank, rank.id() + 1.0), /*accumulate=*/true, "sum").wait();
        EXPECT_TRUE(sum.cpu().equal(at::full({4}, 8.0F)));
        const Tensor host = at::full({3}, rank.id() + 1.0, at::kDouble);
        rank.data().all_reduce_max(host, "host");
        EXPECT_TRUE(host.equal(at::full({3}, 2.0, at::kDouble)));
        rank.data().broadcast(host, 1, "host");
      },
      on_gpus());
}

TEST_F(DeviceBackendTest, ACallIsDoneWhenTheDeviceIsPastIt) {
  std::unique_ptr<FakeGpu::Hold> hold;
  run_ranks(
      2,
      [&](Rank& rank) {
        const Tensor shard = value(rank, rank.id() + 1.0), full = value(rank, 0, 16);
        rank.control().barrier("both are here");
        if (rank.id() == 0) hold = std::make_unique<FakeGpu::Hold>(FakeGpu::Hold::Which::kOthers);
        rank.control().barrier("held");
        rank.data().all_gather(full, shard, "gather").wait();  // returns: only the stream waits
        std::this_thread::sleep_for(100ms);
        EXPECT_EQ(state_of_last(rank), CallState::kLaunched);
        rank.control().barrier("seen");
        if (rank.id() == 0) hold.reset();
        EXPECT_EQ(full.sum().item<float>(), 8 + 16);
        for (int i = 0; i < 500 && state_of_last(rank) != CallState::kDone; ++i) std::this_thread::sleep_for(10ms);
        EXPECT_EQ(state_of_last(rank), CallState::kDone);
      },
      on_gpus());
  EXPECT_FALSE(FakeGpu::started(0)) << "by the thread that watches the calls";
}

}  // namespace
}  // namespace lockstep
