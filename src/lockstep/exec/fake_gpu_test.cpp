// The executor on GPUs that are none: the same numbers as on the CPU, whatever is late.
#include "lockstep/testing/fake_gpu/fake_gpu.h"

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/testing/fake_gpu/environment.h"
#include "lockstep/testing/fake_gpu/fake_group.h"
#include "lockstep/testing/sampled.h"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

class OnFakeGpus : public testing::Test {
 protected:
  void SetUp() override { use_cuda_library(&fake_cuda_api()); }
  void TearDown() override {
    FakeGpu::delay(0us, 0us);
    use_cuda_library(nullptr);
  }
};

struct Result {
  double loss = 0;
  Named gradients, weights;
};

/// One step of two micro-batches a rank, on the CPU or with so many GPUs a rank.
Result train_once(const Model& model, const JobOptions& options, int ranks, int gpus_of_rank,
                  RowMaker make_row = random_row) {
  Result result;
  RanksOptions on;
  if (gpus_of_rank > 0) on.device = [=](int rank) { return FakeGpu::name(rank * gpus_of_rank); };
  run_ranks(
      ranks,
      [&](Rank& rank) {
        JobOptions mine = options;
        for (int i = 0; i < gpus_of_rank; ++i) mine.gpus.push_back(FakeGpu::name(rank.id() * gpus_of_rank + i));
        Job job(model, mine, rank.data());
        std::mt19937_64 random(7 + static_cast<uint64_t>(rank.id()));
        RowsOfStep window(2);
        for (auto& rows : window) {
          for (int i = 0; i < 2; ++i) rows.push_back(make_row(random, /*with_image=*/true));
        }
        const double loss = job.train(window, 5);
        const Named gradients = job.gradients();
        job.update();
        const Named weights = job.weights();
        if (rank.id() == 0) result = {loss, gradients, weights};
      },
      on);
  return result;
}

void expect_same(const Result& found, const Result& expected) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-5);
  EXPECT_LT(relative_difference(found.gradients, expected.gradients), 1e-5);
  EXPECT_LT(relative_difference(found.weights, expected.weights), 2e-4);  // AdamW divides small gradients by themselves
}

JobOptions zero(int stage, int ranks, bool recompute) {
  JobOptions options;
  options.plan.zero = {stage};
  options.plan.world = ranks;
  options.plan.recompute = recompute;
  return options;
}

TEST_F(OnFakeGpus, OneTrainsAsTheCpuDoes) {
  for (const bool windows : {false, true}) {
    const Model model = windows ? qwen_vl_model() : llava_model();
    const RowMaker rows = windows ? random_picture_row : random_row;
    expect_same(train_once(model, {}, 1, 1, rows), train_once(model, {}, 1, 0, rows));
  }
}

TEST_F(OnFakeGpus, AGradientThatIsNoNumberIsNamedByOneRankAndByTwo) {
  const Model model = llava_model();
  for (const int ranks : {1, 2}) {
    std::vector<std::string> named(static_cast<size_t>(ranks));
    RanksOptions on;
    on.device = [](int rank) { return FakeGpu::name(rank); };
    run_ranks(
        ranks,
        [&](Rank& rank) {
          JobOptions options = zero(2, ranks, false);
          options.gpus = {FakeGpu::name(rank.id())};
          Job job(model, options, rank.data());
          std::mt19937_64 random(7);
          const RowsOfStep window{{random_row(random, /*with_image=*/true)}};
          job.train(window, 5);
          EXPECT_EQ(job.executor().grads().first_not_finite(), "");
          job.store()
              .unit(job.store().num_units() - 1)
              .views.front()
              .leaves.back()
              .data()
              .fill_(std::numeric_limits<double>::quiet_NaN());
          job.train(window, 5);
          named[static_cast<size_t>(rank.id())] = job.executor().grads().first_not_finite();
        },
        on);
    for (const auto& name : named) EXPECT_TRUE(name.starts_with("language_model")) << ranks << " ranks: " << name;
  }
}

TEST_F(OnFakeGpus, RanksTrainAsOnTheCpuInEveryStageWhateverIsLate) {
  const Model model = llava_model();
  Sampled sampled;
  for (const int stage : {3, 0, 1, 2}) {
    const JobOptions options = zero(stage, 2, stage % 2 == 1);
    const Result expected = train_once(model, options, 2, 0);
    for (const auto& [of_default, of_others] : {std::pair{0us, 0us}, {0us, 2000us}, {300us, 0us}}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << ", late by " << of_default.count() << " and "
                                      << of_others.count());
      if (!sampled.takes()) continue;
      FakeGpu::delay(of_default, of_others);
      const Result found = train_once(model, options, 2, 1);
      FakeGpu::delay(0us, 0us);
      expect_same(found, expected);
    }
  }
}

TEST_F(OnFakeGpus, BlocksOverSeveralTrainAsOnOneAndOffloadedOnesToo) {
  const Model model = llava_model();
  Sampled sampled;
  for (const bool offload : {true, false}) {
    for (const int stage : {0, 3}) {
      JobOptions options = zero(stage, 2, false);
      const Result expected = train_once(model, options, 2, 0);
      Placement& placement = options.plan.placement;
      placement.num_devices = 2;
      for (size_t b = 0; b < model.blocks.size(); ++b) {
        placement.device_of_block.push_back(b < model.blocks.size() / 2 ? 0 : 1);
      }
      placement.offload_params = placement.offload_optimizer = offload;
      SCOPED_TRACE(testing::Message() << "stage " << stage << (offload ? ", offloaded" : ""));
      for (const auto late : {1000us, 0us}) {
        if (!sampled.takes()) continue;
        FakeGpu::delay(0us, late);
        expect_same(train_once(model, options, 2, 2), expected);
        FakeGpu::delay(late / 4, 0us);
        expect_same(train_once(model, options, 2, 2), expected);
        FakeGpu::delay(0us, 0us);
      }
    }
  }
}

/// In the steady state a step of training asks the device for its figures alone, and the system for no memory.
void expect_no_waits(const Model& model, RowMaker make_row, int stage, bool offload = false) {
  constexpr int kSteps = 10, kSteady = 5;  // until then sizes are met for the first time
  RanksOptions on;
  on.device = [](int rank) { return FakeGpu::name(rank); };
  std::vector<int64_t> allocations;
  run_ranks(
      2,
      [&](Rank& rank) {
        JobOptions options = zero(stage, 2, true);
        options.plan.placement.offload_params = offload;
        options.gpus = {FakeGpu::name(rank.id())};
        Job job(model, options, rank.data());
        std::mt19937_64 random(3);
        const RowsOfStep window{{make_row(random, true), make_row(random, true)}};
        for (int step = 0; step < kSteps; ++step) {
          rank.control().barrier("before");
          const auto before = FakeGpu::counts();
          rank.control().barrier("measured");
          job.train(window, 5);
          rank.control().barrier("after");
          const auto after = FakeGpu::counts();
          rank.control().barrier("read");
          const double squares = job.executor().grads().local_sum_of_squares().item<double>();
          EXPECT_GT(squares, 0);
          rank.control().barrier("summed");
          const int64_t waits = FakeGpu::counts().host_waits - after.host_waits;
          EXPECT_EQ(waits, 2) << "the sum of squares, once a rank";
          rank.control().barrier("counted");
          if (rank.id() != 0 || step < kSteady) continue;
          EXPECT_EQ(after.host_waits - before.host_waits, 2) << "the loss, once a rank; stage " << stage;
          allocations.push_back(after.system_allocations - before.system_allocations);
        }
      },
      on);
  // Autograd frees on threads of its own: a block may come back too late for one step, and is there for the next.
  EXPECT_EQ(*std::min_element(allocations.begin(), allocations.end()), 0) << "stage " << stage;
}

TEST_F(OnFakeGpus, AStepDoesNotMakeTheHostWait) {
  for (const int stage : {0, 3}) {
    expect_no_waits(llava_model(), random_row, stage);
    expect_no_waits(qwen_vl_model(), random_picture_row, stage);
  }
}

TEST_F(OnFakeGpus, AStepFetchesOffloadedWeightsWithoutTheHost) {
  for (const int stage : {2, 3}) expect_no_waits(llava_model(), random_row, stage, /*offload=*/true);
}

}  // namespace
}  // namespace lockstep::test
