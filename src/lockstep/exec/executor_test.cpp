#include "lockstep/exec/executor.h"

#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/tensor/product.h"
#include "lockstep/testing/sampled.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

struct Outcome {
  std::vector<double> losses;
  Named weights;
};

std::vector<std::vector<MicroBatch>> make_steps(uint64_t seed, int num_steps, int accumulation, int world) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<MicroBatch>> steps;
  for (int s = 0; s < num_steps; ++s) {
    std::vector<MicroBatch> window;
    window.reserve(static_cast<size_t>(accumulation));
    for (int m = 0; m < accumulation; ++m) window.push_back(random_micro_batch(random, world, 3));
    steps.push_back(std::move(window));
  }
  return steps;
}

Outcome run_distributed(const Model& model, JobOptions options, const std::vector<std::vector<MicroBatch>>& steps,
                        int world, Transport transport = Transport::kShm) {
  Outcome outcome;
  outcome.losses.resize(steps.size());
  options.plan.world = world;
  run_ranks(world,
            [&](Rank& rank) {
              Job job(model, options, rank.data());
              for (size_t s = 0; s < steps.size(); ++s) {
                const Tensor loss = full({1}, job.accumulate(steps[s], {static_cast<size_t>(rank.id())}), Dtype::kF64);
                rank.control().all_reduce_sum(loss, "loss");
                job.update();
                if (rank.id() == 0) outcome.losses[s] = loss.item<double>();
              }
              Named weights = job.weights();
              if (rank.id() == 0) outcome.weights = std::move(weights);
            },
            {.transport = transport});
  return outcome;
}

/// One process that runs every rank's rows as micro-batches of its own.
Outcome run_alone(const Model& model, const JobOptions& options, const std::vector<std::vector<MicroBatch>>& steps,
                  size_t world) {
  Outcome outcome;
  run_ranks(1, [&](Rank& rank) {
    Job job(model, options, rank.data());
    std::vector<size_t> all(world);
    for (size_t r = 0; r < world; ++r) all[r] = r;
    for (const auto& window : steps) {
      outcome.losses.push_back(job.accumulate(window, all));
      job.update();
    }
    outcome.weights = job.weights();
  });
  return outcome;
}

JobOptions job_options(int stage, bool recompute, Dtype compute = Dtype::kF32) {
  return {.plan = {.zero = {stage}, .compute = compute, .recompute = recompute, .recompute_vision = recompute}};
}

class Stages : public testing::TestWithParam<int> {};

TEST_P(Stages, AllStagesRecomputeAndTransportsGiveTheSameBits) {
  const int world = GetParam();
  Sampled sampled;
  for (const bool tied : {false, true}) {
    // bfloat16 twice: as this CPU multiplies it, and as one without the instructions does.
    for (const auto& [compute, native] :
         std::vector<std::pair<Dtype, bool>>{{Dtype::kF32, true},
                                             {Dtype::kBF16, multiplies_natively(Dtype::kBF16)},
                                             {Dtype::kBF16, false},
                                             {Dtype::kF16, false}}) {
      if (tied && compute != Dtype::kF32 && !native) continue;  // of those, one kind of model suffices
      const NativeProducts products(native);
      const Model model = llava_model(tied);
      const auto steps = make_steps(7, 4, 2, world);
      const Outcome reference = run_distributed(model, job_options(3, true, compute), steps, world);
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool recompute : {true, false}) {
          if (!sampled.takes()) continue;
          const Outcome other = run_distributed(model, job_options(stage, recompute, compute), steps, world);
          EXPECT_EQ(other.losses, reference.losses)
              << "zero" << stage << " recompute " << recompute << " tied " << tied;
          EXPECT_TRUE(bit_equal(other.weights, reference.weights)) << "zero" << stage << " recompute " << recompute;
        }
      }
      const Outcome gloo = run_distributed(model, job_options(3, true, compute), steps, world, Transport::kGloo);
      EXPECT_EQ(gloo.losses, reference.losses);
      EXPECT_TRUE(bit_equal(gloo.weights, reference.weights));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Stages, testing::Values(1, 2, 3, 4));

TEST(Executor, WorldSizesAgreeWithOneProcess) {
  const Model model = llava_model();
  for (const int world : {2, 3, 4}) {
    const auto steps = make_steps(11, 5, 2, world);
    const Outcome alone = run_alone(model, job_options(0, false), steps, static_cast<size_t>(world));
    const Outcome together = run_distributed(model, job_options(3, true), steps, world);
    for (size_t s = 0; s < steps.size(); ++s) EXPECT_NEAR(together.losses[s], alone.losses[s], 1e-5) << "step " << s;
    EXPECT_LE(relative_difference(together.weights, alone.weights), 1e-4) << world << " ranks";
  }
}

TEST(Executor, GradientsTravelInTheDtypeThatIsAskedFor) {
  const Model model = llava_model();
  const auto steps = make_steps(13, 3, 2, 2);
  const auto run = [&](Dtype compute, std::optional<Dtype> reduce) {
    JobOptions options = job_options(3, true, compute);
    options.plan.reduce = reduce;
    return run_distributed(model, options, steps, 2).weights;
  };
  // A gradient of bfloat16 loses nothing on its way in it, since sums are float32 on the host.
  EXPECT_TRUE(bit_equal(run(Dtype::kBF16, Dtype::kF32), run(Dtype::kBF16, std::nullopt)));
  const Named exact = run(Dtype::kF32, std::nullopt), rounded = run(Dtype::kF32, Dtype::kBF16);
  EXPECT_FALSE(bit_equal(rounded, exact));
  EXPECT_LE(relative_difference(rounded, exact), 2e-2);
}

TEST(Executor, AccumulationSplitsAgree) {
  const Model model = llava_model();
  std::mt19937_64 random(5);
  Rows rows;
  for (int i = 0; i < 8; ++i) rows.push_back(random_row(random, i % 3 == 0));
  const auto split = [&](size_t parts) {
    std::vector<MicroBatch> window;
    for (size_t p = 0; p < parts; ++p) {
      const size_t size = rows.size() / parts;
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(p * size);
      window.push_back({Rows(begin, begin + static_cast<std::ptrdiff_t>(size))});
    }
    return std::vector<std::vector<MicroBatch>>(3, window);
  };
  const Outcome whole = run_alone(model, job_options(0, true), split(1), 1);
  for (const size_t parts : {2, 4, 8}) {
    const Outcome parted = run_alone(model, job_options(0, true), split(parts), 1);
    for (size_t s = 0; s < 3; ++s) EXPECT_NEAR(parted.losses[s], whole.losses[s], 1e-5);
    EXPECT_LE(relative_difference(parted.weights, whole.weights), 1e-4);
  }
}

TEST(Executor, FrozenComponentsKeepTheirBitsAndHoldNoState) {
  const Model model = llava_model();
  JobOptions options = job_options(3, true);
  options.plan.frozen = {Component::kVision, Component::kLlm};
  const auto steps = make_steps(3, 3, 1, 2);
  options.plan.world = 2;
  run_ranks(2, [&](Rank& rank) {
    Job job(model, options, rank.data());
    const Named before = job.weights();
    for (const auto& window : steps) {
      job.accumulate(window, {static_cast<size_t>(rank.id())});
      job.update();
    }
    for (int u = 0; u < job.store().num_units(); ++u) {
      const bool trainable = job.store().plan().units[static_cast<size_t>(u)].trainable;
      EXPECT_EQ(job.store().unit(u).optimizer.empty(), !trainable);
      EXPECT_EQ(job.store().unit(u).grad.defined(), trainable);
    }
    const Named after = job.weights();
    if (rank.id() != 0) return;
    for (const auto& [key, value] : after) {
      EXPECT_EQ(value.equal(before.at(key)), !key.starts_with("multi_modal_projector")) << key;
    }
  });
}

TEST(Executor, NobodyWritesSharedWeightsWhileAnotherReadsThem) {
  const Model model = llava_model();
  JobOptions options = job_options(3, true);
  options.plan.world = 3;
  options.plan.shared_weights = true;
  const auto steps = make_steps(3, 1, 1, 3);
  const auto image_of = [](Job& job) {
    std::vector<Tensor> all;
    all.reserve(static_cast<size_t>(job.store().num_units()));
    for (int u = 0; u < job.store().num_units(); ++u) all.push_back(job.store().unit(u).kept.clone());
    return all;
  };
  run_ranks(3, [&](Rank& rank) {
    Job job(model, options, rank.data());
    job.accumulate(steps[0], {static_cast<size_t>(rank.id())});
    const std::vector<Tensor> before = image_of(job);
    rank.data().barrier("seen before");  // else the others' updates may be over by now
    if (rank.id() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others are at their update
    const std::vector<Tensor> still = image_of(job);
    for (size_t u = 0; u < before.size(); ++u) EXPECT_TRUE(still[u].equal(before[u])) << "unit " << u;
    job.update();
    // What each rank sees behind the update is the same, and stays.
    const std::vector<Tensor> after = image_of(job);
    if (rank.id() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::vector<Tensor> later = image_of(job);
    for (size_t u = 0; u < after.size(); ++u) EXPECT_TRUE(later[u].equal(after[u])) << "unit " << u;
    EXPECT_FALSE(after[0].equal(before[0])) << "an update changes something";
    int64_t meetings = 0;
    for (const auto& record : rank.data().ring().last(1024)) meetings += record.label.view() == ParamStore::kWritten;
    EXPECT_EQ(meetings, 2) << "when they are there, and when they have changed";
    rank.data().barrier("seen");
  });
}

TEST(Executor, AComponentHasARateOfItsOwn) {
  const Model model = llava_model();
  std::mt19937_64 random(9);
  const MicroBatch images{{random_row(random, true)}, {random_row(random, true)}};
  const std::vector<std::vector<MicroBatch>> step{{images}};
  const auto weights_at = [&](int stage, double rate, const std::map<Component, double>& ratios) {
    JobOptions options = job_options(stage, true);
    options.learning_rate = rate;
    options.adamw.rate_ratios = ratios;
    return run_distributed(model, options, step, 2).weights;
  };
  const Named at_one = weights_at(0, 1e-3, {}), at_quarter = weights_at(0, 0.25e-3, {});
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto& [key, value] : weights_at(stage, 1e-3, {{Component::kVision, 0.25}})) {
      const bool vision = key.starts_with("vision_tower");
      EXPECT_TRUE(value.equal((vision ? at_quarter : at_one).at(key))) << "zero" << stage << " " << key;
      if (key.ends_with("k_proj.bias")) continue;  // softmax does not see it: no gradient at any rate
      EXPECT_FALSE(value.equal((vision ? at_one : at_quarter).at(key))) << "zero" << stage << " " << key;
    }
  }
}

TEST(Executor, BlocksThatRunNowhereCostNothingAndAreNotUpdated) {
  const Model model = llava_model();
  JobOptions options = job_options(3, true);
  options.plan.world = 2;
  run_ranks(2, [&](Rank& rank) {
    Job job(model, options, rank.data());
    std::mt19937_64 random(1);
    const MicroBatch text{{random_row(random, false)}, {random_row(random, false)}};
    job.accumulate({text}, {static_cast<size_t>(rank.id())});
    job.update();
    for (int u = 0; u < job.store().num_units(); ++u) {
      const std::string& name = job.store().plan().units[static_cast<size_t>(u)].name;
      const bool vision = name.starts_with("vision_tower") || name.starts_with("multi_modal_projector");
      EXPECT_EQ(job.store().unit(u).updates, vision ? 0 : 1) << name;
    }
    for (const auto& record : rank.data().ring().last(1024)) {
      EXPECT_EQ(record.label.view().find("vision_tower"), std::string_view::npos) << record.label.view();
    }
  });
}

/// As a batch that is tried and finds no memory is: between the two uses of a tied weight on the way back.
TEST(Executor, APassThatIsCutShortLeavesNothingToTheNextStep) {
  const Model model = llava_model(/*tied=*/true);
  for (const int stage : {0, 3}) {
    run_ranks(1, [&](Rank& rank) {
      std::mt19937_64 random(17);
      const std::vector<MicroBatch> tried{{{random_row(random, true)}}}, step{{{random_row(random, true)}}};
      Job fresh(model, job_options(stage, true), rank.data()), job(model, job_options(stage, true), rank.data());
      int backward = 0;
      job.executor().watch({.crossed = {}, .synchronize = {}, .stands = [&](const Step&, MemoryPhase phase) {
                              if (phase == MemoryPhase::kBackward && ++backward == 2) throw std::bad_alloc();
                            }});
      EXPECT_THROW(job.accumulate(tried, {0}), std::bad_alloc);
      job.executor().watch({});
      job.executor().grads().clear();
      EXPECT_EQ(job.accumulate(step, {0}), fresh.accumulate(step, {0}));
      EXPECT_TRUE(bit_equal(job.gradients(), fresh.gradients())) << "zero" << stage;
    });
  }
}

TEST(Executor, ZeroThreeHoldsNoGatheredParametersBetweenSteps) {
  const Model model = llava_model();
  for (const bool recompute : {true, false}) {
    JobOptions options = job_options(3, recompute);
    options.plan.world = 2;
    options.plan.placement.offload_optimizer = true;  // so that the device is not the host, where tests count too
    run_ranks(2, [&](Rank& rank) {
      Job job(model, options, rank.data());
      const auto& device = job.store().devices().at(0);
      device->reset_peaks();
      const int64_t before = device->alive_bytes();
      std::mt19937_64 random(1);
      job.accumulate({{{random_row(random, true)}, {random_row(random, true)}}}, {static_cast<size_t>(rank.id())});
      EXPECT_EQ(device->alive_bytes(), before);
      EXPECT_GT(device->peak_bytes(), before);
    });
  }
}

}  // namespace
}  // namespace lockstep
