// Random steps over ranks and stages: text beside images, uneven rows, ranks without rows. Every gradient must equal
// that of one process on the union, and nothing may hang. LOCKSTEP_FUZZ_STEPS (default 300) and LOCKSTEP_FUZZ_SEED
// choose length and start.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/exec/test_job.h"

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
  std::cout << "fuzz: " << total << " steps, seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  constexpr int64_t kPerJob = 5;
  for (int64_t done = 0; done < total; done += kPerJob) {
    const int world = 2 + static_cast<int>(random() % 3);
    const int stage = static_cast<int>(done / kPerJob % 4);
    JobOptions options{.plan = {.zero = {stage}, .compute = Dtype::kF32}};
    options.plan.recompute = random() % 2 == 0;
    options.plan.recompute_vision = random() % 2 == 0;
    if (random() % 4 == 0) options.plan.frozen.insert(Component::kVision);
    if (random() % 6 == 0) options.plan.frozen.insert(Component::kLlm);
    const bool tied = random() % 2 == 0;
    options.seed = random();
    std::vector<std::vector<MicroBatch>> steps(kPerJob);
    for (auto& window : steps) {
      for (uint64_t m = 0; m < 1 + random() % 3; ++m) window.push_back(random_micro_batch(random, world, 3));
    }
    const Model model = llava_model(tied);
    JobOptions alone = options;
    options.plan.world = world;
    const auto together = gradients_of(model, options, steps, world, static_cast<size_t>(world));
    const auto reference = gradients_of(model, alone, steps, 1, static_cast<size_t>(world));
    for (size_t s = 0; s < steps.size(); ++s) {
      ASSERT_LE(relative_difference(together[s], reference[s]), 1e-5)
          << "seed " << seed << ", step " << done + static_cast<int64_t>(s) << ", zero" << stage << ", " << world
          << " ranks";
    }
  }
}

}  // namespace
}  // namespace lockstep
