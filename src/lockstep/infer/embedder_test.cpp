// Embeddings against rows run one by one, over ranks and stages.
#include "lockstep/infer/embedder.h"

#include <cmath>
#include <map>
#include <mutex>
#include <random>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/infer/test_rows.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

class EmbedderTest : public testing::Test {
 protected:
  static Dataset data(size_t count) { return RowsFile(count).open(); }

  struct Outcome {
    std::map<int64_t, RowEmbedding> rows;
    std::map<int64_t, std::string> skipped;
  };
  static Outcome embed(const Model& model, const Dataset& rows, const Processor& processor, int world, const Held& held,
                       int64_t batch_size, const EmbedOptions& options) {
    Outcome outcome;
    std::mutex mutex;
    run_ranks(world, [&](Rank& rank) {
      Job job(model, inference_job(world, held), rank.data());
      Loader loader(rows, processor,
                    {.batch_size = batch_size, .rank = rank.id(), .world = world, .shuffle = false, .prompts = true});
      Embedder embedder(model, job.executor(), rank.control(), job.plan().gathers());
      embedder.run(loader, options,
                   {.embedded =
                        [&](const RowEmbedding& row) {
                          const std::lock_guard lock(mutex);
                          EXPECT_TRUE(outcome.rows.emplace(row.row, row).second) << "row " << row.row << " came twice";
                        },
                    .skipped =
                        [&](const SkippedRow& row) {
                          const std::lock_guard lock(mutex);
                          EXPECT_TRUE(outcome.skipped.emplace(row.row, row.why).second);
                        }});
    });
    return outcome;
  }
};

Rows random_rows(RowMaker make_row, size_t count) {
  std::mt19937_64 random(3);
  Rows rows;
  for (size_t i = 0; i < count; ++i) rows.push_back(make_row(random, i % 3 == 1));
  return rows;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : 1e30;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

TEST_F(EmbedderTest, ARowHasTheSameBitsWhateverTheRanksAndTheSameNumbersAlone) {
  const auto check_family = [&](const Model& model, RowMaker make_row) {
    const ListProcessor processor(random_rows(make_row, 17), {});
    const Dataset rows = data(17);
    for (const auto extent : {Extent::kWhole, Extent::kInputs}) {
      const EmbedOptions options{.extent = extent};
      const auto single = embed(model, rows, processor, 1, {0}, 1, options);
      const auto alone = embed(model, rows, processor, 1, {0}, 4, options);
      ASSERT_EQ(alone.rows.size(), 17U);
      for (const auto& [row, embedding] : alone.rows) {
        EXPECT_LE(largest_difference(embedding.values, single.rows.at(row).values), 2e-5);
      }
      for (const int world : {2, 3, 4}) {
        for (const Held& held : kHeld) {
          SCOPED_TRACE(testing::Message() << world << " ranks, " << held);
          const auto shared = embed(model, rows, processor, world, held, 4, options);
          ASSERT_EQ(shared.rows.size(), 17U);
          for (const auto& [row, embedding] : shared.rows) EXPECT_EQ(embedding.values, alone.rows.at(row).values);
        }
      }
    }
  };
  check_family(llava_model(), random_row);
  check_family(qwen_vl_model(), random_picture_row);
}

TEST_F(EmbedderTest, PoolsAndScalesAsAsked) {
  const Model model = llava_model();
  const ListProcessor processor(random_rows(random_row, 5), {});
  const Dataset rows = data(5);
  const auto run = [&](EmbedOptions options) { return embed(model, rows, processor, 1, {0}, 2, options).rows; };
  const auto last = run({.pooling = Pooling::kLast}), first = run({.pooling = Pooling::kCls}), mean = run({});
  for (const auto& [row, embedding] : run({.normalize = true})) {
    double squares = 0;
    for (const float value : embedding.values) squares += double{value} * double{value};
    EXPECT_NEAR(squares, 1.0, 1e-5);
  }
  EXPECT_GT(largest_difference(last.at(0).values, first.at(0).values), 1e-3);
  EXPECT_GT(largest_difference(last.at(0).values, mean.at(0).values), 1e-3);
  EXPECT_EQ(mean.at(0).width, 20);
  EXPECT_EQ(run({.extent = Extent::kInputs}).at(3).values.size(), static_cast<size_t>(mean.at(3).tokens * 20));
}

TEST_F(EmbedderTest, ABadRowFailsAloneAndRanksWithoutRowsFinish) {
  const Model model = llava_model();
  const ListProcessor processor(random_rows(random_row, 5), {1, 4});
  const Dataset rows = data(5);
  for (const Held& held : kHeld) {
    for (const int64_t batch : {1, 2, 8}) {
      const auto outcome = embed(model, rows, processor, 4, held, batch, {});
      EXPECT_EQ(outcome.rows.size(), 3U);
      ASSERT_EQ(outcome.skipped.size(), 2U);
      EXPECT_NE(outcome.skipped.at(4).find("no such image"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep
