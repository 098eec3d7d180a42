// Every row of an epoch comes once, however often a run is cut and goes on with other ranks, batches and accumulation.
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/data/test_processor.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/train/train_options.h"
#include "lockstep/train/window.h"

namespace lockstep {
namespace {

/// The question's number is a row's first token; the second is trained.
class NumberProcessor final : public test::FeaturesProcessor {
 public:
  Features train_features(const Sample& sample, const ProcessOptions& /*options*/) const override {
    Features features;
    features.input_ids = {std::stoi(sample.messages.at(0).content), 1};
    features.labels = {-100, 1};
    features.sample = sample;
    return features;
  }
};

/// One start of a run: so many ranks, rows a rank and micro-batch, micro-batches a step.
struct Shape {
  int ranks = 1;
  int64_t batch = 1, accumulation = 1;
  bool drop_last = false;
  int64_t rows_per_batch() const { return ranks * batch; }
};

class ResumeRows : public testing::Test {
 protected:
  ResumeRows() {
    path_ = std::filesystem::temp_directory_path() / ("lockstep_resume_rows_" + std::to_string(::getpid()) + ".jsonl");
  }
  ~ResumeRows() override { std::filesystem::remove(path_); }

  Dataset rows(int64_t count) const {
    std::ofstream out(path_);
    for (int64_t i = 0; i < count; ++i)
      out << R"({"query": ")" << i << R"(", "response": "x"})"
          << "\n";
    out.close();
    return Dataset({path_.string()}, {.strict = true});
  }

  /// Runs `steps` windows from `cursor` and counts, per epoch, how often each row came to any rank.
  void train(const Dataset& data, const Shape& shape, int64_t steps, LoaderCursor& cursor) {
    const LoaderCursor begin = cursor;
    run_ranks(shape.ranks, [&](Rank& rank) {
      const NumberProcessor processor;
      Loader loader(data, processor,
                    {.batch_size = shape.batch,
                     .rank = rank.id(),
                     .world = shape.ranks,
                     .seed = 7,
                     .drop_last = shape.drop_last});
      loader.seek(begin);
      WindowReader reader(loader, rank.data(), rank.control(), {.collate = {}, .stop_wanted = {}});
      LoaderCursor at = begin;
      for (int64_t step = 0; step < steps; ++step) {
        const Window window = reader.next(shape.accumulation);
        const std::lock_guard lock(mutex_);
        if (shape.drop_last && rank.id() == 0) {
          EXPECT_EQ(window.rows, static_cast<int64_t>(window.micro_batches.size()) * shape.rows_per_batch());
        }
        for (const auto& micro : window.micro_batches) {
          if (micro.here.empty()) continue;
          const Tensor ids = micro.flow["input_ids"];
          for (int64_t row = 0; row < ids.size(0); ++row) ++seen_[at.epoch][ids[row][0].item<int64_t>()];
        }
        at = window.after;
      }
      if (rank.id() == 0) cursor = at;
    });
  }

  std::filesystem::path path_;
  std::mutex mutex_;
  std::map<int64_t, std::map<int64_t, int>> seen_;  // epoch, row: how often
};

TEST_F(ResumeRows, ComeOnceOverAnyChangeOfRanksBatchesAndAccumulation) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  for (int run = 0; run < 12; ++run) {
    seen_.clear();
    const int64_t count = 1 + below(40), epochs = 1 + below(3);
    const Dataset data = rows(count);
    TrainOptions options{.num_train_epochs = static_cast<double>(epochs)};
    LoaderCursor cursor;
    for (int start = 0;; ++start) {
      ASSERT_LT(start, 1000);
      const Shape shape{.ranks = 1 + below(3), .batch = 1 + below(4), .accumulation = 1 + below(3)};
      options.gradient_accumulation_steps = shape.accumulation;
      const int64_t left =
          steps_left(options, cursor, {.whole = count, .end = count, .per_batch = shape.rows_per_batch()});
      if (left == 0) break;
      train(data, shape, std::min<int64_t>(left, 1 + below(5)), cursor);
    }
    EXPECT_EQ(cursor, (LoaderCursor{.epoch = epochs, .rows = 0}));
    ASSERT_EQ(seen_.size(), static_cast<size_t>(epochs));
    for (const auto& [epoch, rows] : seen_) {
      ASSERT_EQ(rows.size(), static_cast<size_t>(count)) << "epoch " << epoch << " of " << epochs;
      for (const auto& [row, times] : rows) EXPECT_EQ(times, 1) << "row " << row << " of epoch " << epoch;
    }
  }
}

/// 23 rows, of which 10 were trained by batches of 10: what is then left out fills no batch of the new ones.
TEST_F(ResumeRows, ThatFillABatchComeThoughOtherBatchesWouldHaveLeftThemOut) {
  const Dataset data = rows(23);
  struct Case {
    Shape after;
    int64_t more, steps;
  };
  for (const Case& one : {Case{{.ranks = 2, .batch = 4, .drop_last = true}, 8, 1 + 2},
                          Case{{.ranks = 1, .batch = 3, .accumulation = 2, .drop_last = true}, 12, 2 + 4},
                          Case{{.ranks = 3, .batch = 2, .drop_last = true}, 12, 2 + 3}}) {
    seen_.clear();
    LoaderCursor cursor;
    train(data, {.ranks = 2, .batch = 5, .drop_last = true}, 1, cursor);
    EXPECT_EQ(cursor, (LoaderCursor{.epoch = 0, .rows = 10}));
    const int64_t per_batch = one.after.rows_per_batch(), end = cursor.rows + one.more;
    const TrainOptions options{.gradient_accumulation_steps = one.after.accumulation, .num_train_epochs = 2};
    const int64_t left =
        steps_left(options, cursor, {.whole = 23 - 23 % per_batch, .end = end, .per_batch = per_batch});
    EXPECT_EQ(left, one.steps) << per_batch;
    train(data, one.after, left, cursor);
    EXPECT_EQ(cursor, (LoaderCursor{.epoch = 2, .rows = 0})) << per_batch;
    EXPECT_EQ(static_cast<int64_t>(seen_[0].size()), end) << per_batch;
    EXPECT_EQ(static_cast<int64_t>(seen_[1].size()), 23 - 23 % per_batch) << per_batch;
    for (const auto& [row, times] : seen_[0]) EXPECT_EQ(times, 1) << "row " << row;
  }
}

TEST_F(ResumeRows, AreAsManyStepsAsBeforeWhenNothingChanges) {
  for (const double epochs : {0.4, 1.0, 1.5, 2.3, 3.0}) {
    for (const int64_t rows : {1, 23, 24, 25}) {
      TrainOptions options{.gradient_accumulation_steps = 2, .num_train_epochs = epochs};
      const int64_t per_batch = 3, total = total_steps(options, (rows + per_batch - 1) / per_batch);
      LoaderCursor cursor;
      for (int64_t step = 0; step <= total; ++step) {
        EXPECT_EQ(step + steps_left(options, cursor, {.whole = rows, .end = rows, .per_batch = per_batch}), total)
            << epochs << " epochs of " << rows;
        cursor.rows += 2 * per_batch;
        if (cursor.rows >= rows) cursor = {.epoch = cursor.epoch + 1, .rows = 0};
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
