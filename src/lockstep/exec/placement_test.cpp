// Blocks over several devices, weights and optimizer on the host: the numbers are those of one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

struct Outcome {
  std::vector<double> losses;
  Named weights;
};

/// Two steps of a window of `micro_batches` on each rank, each rank with rows of its own.
Outcome run(const Model& model, JobOptions options, int world, int micro_batches, RowMaker make_row) {
  Outcome outcome;
  options.plan.world = world;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, options, rank.data());
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) {
      RowsOfStep window;
      for (int m = 0; m < micro_batches; ++m) {
        std::mt19937_64 random(static_cast<uint64_t>(100 * step + 10 * m + rank.id()));
        window.push_back({make_row(random, true), make_row(random, m % 2 == 0)});
      }
      const Tensor loss = full({1}, job.train(window, 5), Dtype::kF64);
      rank.control().all_reduce_sum(loss, "loss");
      job.update();
      losses.push_back(loss.item<double>());
    }
    Named weights = job.weights();
    if (rank.id() != 0) return;
    outcome = {losses, std::move(weights)};
  });
  return outcome;
}

/// To the bit, but for a tied weight that is read on two devices: its gradients are added in another order.
void expect_same(const Outcome& got, const Outcome& wanted, bool to_the_bit, const std::string& what) {
  ASSERT_EQ(got.losses.size(), wanted.losses.size()) << what;
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], wanted.losses[i], to_the_bit ? 0 : 1e-6 * std::abs(wanted.losses[i])) << what;
  }
  EXPECT_LE(relative_difference(got.weights, wanted.weights), to_the_bit ? 0 : 1e-4) << what;
}

std::vector<int> stretches(size_t blocks, int devices) {
  std::vector<int> map;
  for (size_t b = 0; b < blocks; ++b) map.push_back(static_cast<int>(b * static_cast<size_t>(devices) / blocks));
  return map;
}

std::vector<int> any_map(size_t blocks, int devices, std::mt19937_64& random) {
  std::vector<int> map;
  for (size_t b = 0; b < blocks; ++b) map.push_back(static_cast<int>(random() % static_cast<uint64_t>(devices)));
  return map;
}

std::string words(const std::vector<int>& map) { return fmt::format("{}", fmt::join(map, " ")); }

class Placed : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Placed, GivesTheNumbersOfOneDevice) {
  const auto [world, stage] = GetParam();
  const uint64_t seed = std::random_device{}();
  fmt::print("seed {}\n", seed);
  std::mt19937_64 random(seed);
  for (const auto& [make_model, make_row] : std::vector<std::pair<Model (*)(bool), RowMaker>>{
           {&llava_model, &random_row}, {&qwen_vl_model, &random_picture_row}}) {
    for (const bool tied : {false, true}) {
      const Model model = make_model(tied);
      JobOptions options{.plan = {.zero = {stage}, .compute = Dtype::kF32, .recompute = tied}};
      const Outcome one = run(model, options, world, 3, make_row);
      for (const int devices : {1, 2, 4}) {
        for (const bool contiguous : {true, false}) {
          Placement& placement = options.plan.placement;
          placement = {.num_devices = devices};
          placement.device_of_block =
              contiguous ? stretches(model.blocks.size(), devices) : any_map(model.blocks.size(), devices, random);
          placement.offload_optimizer = random() % 3 == 0;
          placement.offload_params = random() % 3 == 0;
          options.virtual_devices = true;
          if (!placement.offload_optimizer && random() % 2 == 0) {
            for (size_t b = 0; b < model.blocks.size(); ++b) {
              const int other = static_cast<int>(random() % static_cast<uint64_t>(devices));
              placement.optimizer_shares.push_back({{placement.device_of_block[b], 0, 0.37}, {other, 0.37, 1}});
            }
          }
          expect_same(run(model, options, world, 3, make_row), one, !tied,
                      fmt::format("{} tied {} devices {} map {} offload {} {} shares {}", model.family, tied, devices,
                                  words(placement.device_of_block), placement.offload_params,
                                  placement.offload_optimizer, placement.optimizer_shares.size()));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldsAndStages, Placed, testing::Combine(testing::Values(1, 2, 3), testing::Values(0, 2, 3)));

}  // namespace
}  // namespace lockstep
