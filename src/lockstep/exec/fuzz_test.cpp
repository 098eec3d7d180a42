// Random steps over ranks and stages, of a model with images of one size and of one with images of any size and videos:
// text beside images, several of them in a row, uneven rows, ranks without rows. Every gradient must equal that of one
// process on the union, and nothing may hang. LOCKSTEP_FUZZ_STEPS (default 300), LOCKSTEP_FUZZ_RANKS (at most; 4) and
// LOCKSTEP_FUZZ_SEED choose length, width and start.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/testing/sampled.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

/// Gradients of `num_steps` windows on `world` ranks, as rank 0 sees them.
std::vector<Named> gradients_of(const Model& model, const JobOptions& options,
                                const std::vector<std::vector<MicroBatch>>& steps, int ranks, size_t rows_of) {
  std::vector<Named> all(steps.size());
  run_ranks(ranks, [&](Rank& rank) {
    Job job(model, options, rank.data());
    std::vector<size_t> mine;
    for (size_t r = 0; r < rows_of; ++r) {
      if (ranks == 1 || static_cast<int>(r) == rank.id()) mine.push_back(r);
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      job.accumulate(steps[s], mine);
      Named gradients = job.gradients();
      if (rank.id() == 0) all[s] = std::move(gradients);
    }
  });
  return all;
}

TEST(Fuzz, MixedBatchesOnAnyRanksEqualOneProcessOnTheUnion) {
  const Env env = Env::process();
  // Sanitizer builds set LOCKSTEP_TEST_SCALE: the same paths, fewer times.
  const double scale = env.has("LOCKSTEP_TEST_SCALE") ? std::stod(*env.text("LOCKSTEP_TEST_SCALE")) : 1.0;
  const auto total = env.integer("LOCKSTEP_FUZZ_STEPS").value_or(std::llround(300 * scale));
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261121));
  const int64_t most_ranks = std::max<int64_t>(2, env.integer("LOCKSTEP_FUZZ_RANKS").value_or(4));
  std::cout << "fuzz: " << total << " steps on 2 to " << most_ranks << " ranks, seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  constexpr int64_t kPerJob = 5;
  for (int64_t done = 0; done < total; done += kPerJob) {
    const int world = 2 + static_cast<int>(random() % static_cast<uint64_t>(most_ranks - 1));
    const int stage = static_cast<int>(done / kPerJob % 4);
    const bool any_size = done / kPerJob / 4 % 2 == 1;
    JobOptions options{.plan = {.zero = {stage}, .compute = Dtype::kF32}};
    options.plan.recompute = random() % 2 == 0;
    options.plan.recompute_vision = random() % 2 == 0;
    if (random() % 4 == 0) options.plan.frozen.insert(Component::kVision);
    if (random() % 6 == 0) options.plan.frozen.insert(Component::kLlm);
    const bool tied = random() % 2 == 0;
    options.seed = random();
    std::vector<std::vector<MicroBatch>> steps(kPerJob);
    for (auto& window : steps) {
      for (uint64_t m = 0; m < 1 + random() % 3; ++m) {
        window.push_back(random_micro_batch(random, world, 3, any_size ? random_picture_row : random_row));
      }
    }
    const Model model = any_size ? qwen_vl_model(tied) : llava_model(tied);
    JobOptions alone = options;
    options.plan.world = world;
    const auto together = gradients_of(model, options, steps, world, static_cast<size_t>(world));
    const auto reference = gradients_of(model, alone, steps, 1, static_cast<size_t>(world));
    for (size_t s = 0; s < steps.size(); ++s) {
      ASSERT_LE(relative_difference(together[s], reference[s]), 1e-5)
          << "seed " << seed << ", step " << done + static_cast<int64_t>(s) << ", zero" << stage << ", " << world
          << " ranks, " << model.family;
    }
  }
}

/// Weights after a few steps of accumulation, on rank 0.
Named trained(const Model& model, JobOptions options, const std::vector<std::vector<MicroBatch>>& steps, int world) {
  Named weights;
  options.plan.world = world;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, options, rank.data());
    for (const auto& window : steps) {
      job.accumulate(window, {static_cast<size_t>(rank.id())});
      job.update();
    }
    Named mine = job.weights();
    if (rank.id() == 0) weights = std::move(mine);
  });
  return weights;
}

TEST(PicturesOfAnySize, AllStagesAndRecomputeGiveTheSameBits) {
  const int world = 3;
  std::mt19937_64 random(31);
  Sampled sampled;
  for (const Dtype compute : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    const Model model = qwen_vl_model(compute == Dtype::kBF16);
    std::vector<std::vector<MicroBatch>> steps(3);
    for (auto& window : steps) {
      for (int m = 0; m < 2; ++m) window.push_back(random_micro_batch(random, world, 3, random_picture_row));
    }
    JobOptions options{.plan = {.zero = {3}, .compute = compute}};
    const Named reference = trained(model, options, steps, world);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {true, false}) {
        if (!sampled.takes()) continue;
        options.plan.zero = {stage};
        options.plan.recompute = options.plan.recompute_vision = recompute;
        EXPECT_TRUE(bit_equal(trained(model, options, steps, world), reference))
            << "zero" << stage << " recompute " << recompute;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
