#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "lockstep/base/clock.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/guard/report.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/fake_group.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// Of a device that broke after the call was queued: LibTorch throws whatever it is asked.
class UnaskableCall final : public DeviceCall {
 public:
  void order_current_stream() override {}
  bool passed() const override {
    throw std::runtime_error("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might …");
  }
  std::string failure() const override { return {}; }
};
/// As LibTorch has NCCL's: one that broke is completed, and has an error as soon as it was asked whether it is.
class BrokenCall final : public DeviceCall {
 public:
  void order_current_stream() override {}
  bool passed() const override { return asked_ = true; }
  std::string failure() const override { return asked_ ? "NCCL error: remote process exited\nLast error: …" : ""; }

 private:
  mutable std::atomic<bool> asked_{false};
};
class PlainCall final : public DeviceCall {
 public:
  explicit PlainCall(bool passed) : passed_(passed) {}
  void order_current_stream() override {}
  bool passed() const override { return passed_; }
  std::string failure() const override { return {}; }

 private:
  const bool passed_;
};

/// What became of a group.
struct GroupEnd {
  std::atomic<bool> aborted{false}, left{false};
};
/// All its calls are one.
class GroupOfOneCall final : public DeviceGroup {
 public:
  GroupOfOneCall(std::shared_ptr<DeviceCall> call, GroupEnd& end) : call_(std::move(call)), end_(end) {}
  std::shared_ptr<DeviceCall> all_gather(const Tensor&, const Tensor&) override { return call_; }
  std::shared_ptr<DeviceCall> all_to_all(const Tensor&, const Tensor&) override { return call_; }
  std::shared_ptr<DeviceCall> broadcast(const Tensor&, int) override { return call_; }
  std::string name() const override { return "one call"; }
  void abort() override {
    end_.aborted = true;
    throw std::runtime_error("the group cannot be aborted");
  }
  void leave() override { end_.left = true; }

 private:
  std::shared_ptr<DeviceCall> call_;
  GroupEnd& end_;
};

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
  static std::unique_ptr<Backend> backend_of(std::shared_ptr<DeviceCall> call, GroupEnd& end) {
    return make_device_backend(std::make_unique<GroupOfOneCall>(std::move(call), end),
                               {.device = FakeGpu::name(2), .size = 1, .patience = 60s});
  }
  static std::unique_ptr<Work> gathered(Backend& backend) {
    const Tensor one = at::full({4}, 1.0, at::device(FakeGpu::device(2)));
    return backend.all_gather(at::empty_like(one), one);
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

TEST_F(DeviceBackendTest, ACallInWhichTheDeviceStandsIsToldAsWaiting) {
  std::unique_ptr<FakeGpu::Hold> hold = std::make_unique<FakeGpu::Hold>(FakeGpu::Hold::Which::kOthers);
  run_ranks(
      2,
      [&](Rank& rank) {
        const auto waiting = [&] {
          const RankReport report = read_board(rank.data().recorder().board(), 64);
          return report.waiting() == nullptr ? std::string() : report.waiting()->name;
        };
        const auto becomes = [&](const std::string& wanted) {
          for (int i = 0; i < 1000 && waiting() != wanted; ++i) std::this_thread::sleep_for(10ms);
          return waiting() == wanted;
        };
        const Tensor shard = value(rank, 1), full = value(rank, 0, 16);
        const auto begun = Clock::now();
        rank.data().all_gather(full, shard, "gather").wait();
        const std::string at_once = waiting();
        if (Clock::now() - begun < 400ms) {  // else the moment may be over
          EXPECT_EQ(at_once, "") << "for a moment that is nothing";
        }
        EXPECT_TRUE(becomes("data"));
        rank.control().barrier("both have seen it");
        if (rank.id() == 0) hold.reset();
        EXPECT_TRUE(becomes(""));
      },
      on_gpus());
}

/// The device comes to the call later than the patience allows for a call: its own work is nobody's delay.
TEST_F(DeviceBackendTest, WorkThatIsQueuedBeforeACallIsNoPartOfIt) {
  std::unique_ptr<FakeGpu::Hold> hold = std::make_unique<FakeGpu::Hold>(FakeGpu::Hold::Which::kDefault);
  run_ranks(
      2,
      [&](Rank& rank) {
        const Tensor shard = value(rank, 1), full = value(rank, 0, 16);
        shard.add_(1);
        rank.data().all_gather(full, shard, "gather").wait();
        std::this_thread::sleep_for(4s);
        rank.control().barrier("longer than the patience");
        if (rank.id() == 0) hold.reset();
        EXPECT_EQ(full.sum().item<float>(), 32);
      },
      on_gpus(2s));
}

TEST_F(DeviceBackendTest, ACallThatTheDeviceDoesNotComeToIsAborted) {
  std::unique_ptr<FakeGpu::Hold> hold = std::make_unique<FakeGpu::Hold>(FakeGpu::Hold::Which::kOthers);
  run_ranks(
      2,
      [&](Rank& rank) {
        const Tensor shard = value(rank, 1), full = value(rank, 0, 16);
        rank.data().all_gather(full, shard, "gather").wait();
        std::string said;
        for (int i = 0; i < 500 && said.empty(); ++i) {
          std::this_thread::sleep_for(10ms);
          try {
            rank.data().all_gather(full, shard, "after").wait();
          } catch (const CollectiveError& error) {
            said = error.what();
          }
        }
        EXPECT_NE(said.find("was aborted"), std::string::npos) << said;
        rank.control().barrier("both have seen it");
        if (rank.id() == 0) hold.reset();
      },
      on_gpus(2s));
}

TEST_F(DeviceBackendTest, ACallThatBrokeSaysSoWhereTheNextIsMade) {
  for (const auto& [call, words] : {std::pair<std::shared_ptr<DeviceCall>, const char*>{
                                        std::make_shared<UnaskableCall>(), "CUDA error: an illegal memory access"},
                                    {std::make_shared<BrokenCall>(), "NCCL error: remote process exited"}}) {
    GroupEnd end;
    const auto backend = backend_of(call, end);
    const auto gather = gathered(*backend);
    std::atomic<bool> passed{false};
    gather->follow({.passed = [&] { passed = true; }, .waits = {}});
    for (int i = 0; i < 500 && !end.aborted; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(end.aborted) << words;
    EXPECT_FALSE(passed) << words;
    EXPECT_THROW(gather->finish(60s), CommTimeout);
    try {
      gathered(*backend);
      ADD_FAILURE() << words;
    } catch (const CommTimeout& late) {
      EXPECT_NE(late.detail.find(words), std::string::npos) << late.detail;
      EXPECT_EQ(late.detail.find('\n'), std::string::npos) << late.detail;
    }
  }
}

/// Leaving in good order waits for calls to which nobody comes any more.
TEST_F(DeviceBackendTest, AGroupIsLeftInGoodOrderWhereTheJobEndsSo) {
  GroupEnd good, bad;
  (void)gathered(*backend_of(std::make_shared<PlainCall>(true), good));
  EXPECT_TRUE(good.left);
  EXPECT_FALSE(good.aborted);
  try {
    const auto backend = backend_of(std::make_shared<PlainCall>(false), bad);
    (void)gathered(*backend);
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of memory");
  }
  EXPECT_TRUE(bad.aborted);
  EXPECT_FALSE(bad.left);
}

}  // namespace
}  // namespace lockstep
