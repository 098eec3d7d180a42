#include "lockstep/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/data/random.h"
#include "lockstep/data/test_processor.h"

namespace lockstep {
namespace {

/// The question's number is the only token. Questions may ask to be slow, unreadable, too long, or to break the
/// program.
class FakeProcessor final : public test::FeaturesProcessor {
 public:
  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    const int now = ++busy_;
    {
      const std::lock_guard lock(mutex_);
      most_busy_ = std::max(most_busy_, now);
      ++started_;
    }
    struct Leave {
      std::atomic<int>& busy;
      ~Leave() { --busy; }
    } leave{busy_};
    const std::string& text = sample.messages.at(0).content;
    const int number = std::stoi(text);
    if (text.ends_with("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (text.ends_with("bad")) throw data_error(sample.where + ": no such image");
    if (text.ends_with("bug")) throw std::logic_error("a bug at " + text);
    if (options.max_length > 0 && number > options.max_length) throw data_error(sample.where + ": too long");
    Features features;
    features.input_ids = {number};
    features.sample = sample;
    return features;
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    Features features = train_features(sample, options);
    features.input_ids.push_back(-1);
    return features;
  }

  int most_busy() const {
    const std::lock_guard lock(mutex_);
    return most_busy_;
  }
  int started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::atomic<int> busy_{0};
  mutable int most_busy_ = 0, started_ = 0;
};

class LoaderTest : public InTestFolder {
 protected:
  /// Rows "0", "1", …, with `words` added to some.
  Dataset data(int count, const std::map<int, std::string>& words = {}) const {
    std::ofstream out(folder_ / "rows.jsonl");
    for (int i = 0; i < count; ++i) {
      out << fmt::format("{{\"query\": \"{} {}\"}}\n", i, words.contains(i) ? words.at(i) : "");
    }
    out.close();
    return Dataset({(folder_ / "rows.jsonl").string()}, {});
  }

  FakeProcessor processor_;
};

std::vector<int> numbers(const LoadedBatch& batch) {
  std::vector<int> out;
  for (const auto& row : batch.rows) out.push_back(row.input_ids.at(0));
  return out;
}

/// Every micro-batch to the end of the epoch.
std::vector<std::vector<int>> drain(Loader& loader) {
  std::vector<std::vector<int>> out;
  while (auto batch = loader.next()) out.push_back(numbers(*batch));
  return out;
}

using Batches = std::vector<std::vector<int>>;

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpochAlone) {
  auto order = epoch_order(1000, 42, 3, true);
  EXPECT_EQ(order, epoch_order(1000, 42, 3, true));
  EXPECT_NE(order, epoch_order(1000, 42, 4, true));
  EXPECT_NE(order, epoch_order(1000, 43, 3, true));
  std::sort(order.begin(), order.end());
  std::vector<int64_t> straight(1000);
  std::iota(straight.begin(), straight.end(), 0);
  EXPECT_EQ(order, straight);
  EXPECT_EQ(epoch_order(1000, 42, 3, false), straight);
  EXPECT_TRUE(epoch_order(0, 1, 0, true).empty());
}

TEST(EpochOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(epoch_order(10, 42, 0, true), (std::vector<int64_t>{1, 5, 3, 0, 4, 6, 7, 2, 8, 9}));
  EXPECT_EQ(epoch_order(10, 42, 1, true), (std::vector<int64_t>{8, 9, 0, 3, 1, 6, 2, 5, 4, 7}));
}

TEST_F(LoaderTest, AGivenOrderIsTakenAsItIsAndEndsWithItself) {
  const Dataset rows = data(6);
  for (const int workers : {0, 2}) {
    Loader first(rows, processor_,
                 {.batch_size = 2, .rank = 0, .world = 2, .num_workers = workers, .order = {{5, 1, 4}}});
    Loader second(rows, processor_,
                  {.batch_size = 2, .rank = 1, .world = 2, .num_workers = workers, .order = {{5, 1, 4}}});
    EXPECT_EQ(drain(first), (Batches{{5, 1}}));
    EXPECT_EQ(drain(second), (Batches{{4}}));
    EXPECT_EQ(first.cursor().rows, 3);
    Loader none(rows, processor_, {.num_workers = workers, .order = {std::vector<int64_t>{}}});
    EXPECT_FALSE(none.next().has_value());
  }
}

TEST_F(LoaderTest, RanksTakeSlicesOfTheSameOrderAndEndTogether) {
  const Dataset rows = data(11);
  // G = 2 * 3: the first micro-batch takes 6 rows, the second 5: rank 2 gets one of two.
  Loader r0(rows, processor_, {.batch_size = 2, .rank = 0, .world = 3, .shuffle = false});
  Loader r1(rows, processor_, {.batch_size = 2, .rank = 1, .world = 3, .shuffle = false});
  Loader r2(rows, processor_, {.batch_size = 2, .rank = 2, .world = 3, .shuffle = false});
  EXPECT_EQ(drain(r0), (Batches{{0, 1}, {6, 7}}));
  EXPECT_EQ(drain(r1), (Batches{{2, 3}, {8, 9}}));
  EXPECT_EQ(drain(r2), (Batches{{4, 5}, {10}}));
  EXPECT_EQ(r2.batches_per_epoch(), 2);
  EXPECT_FALSE(r2.next().has_value());
}

TEST_F(LoaderTest, ARankWithoutRowsAtTheTailGetsAnEmptyBatch) {
  const Dataset rows = data(5);
  Loader loader(rows, processor_, {.batch_size = 2, .rank = 1, .world = 2, .shuffle = false});
  EXPECT_EQ(drain(loader), (Batches{{2, 3}, {}}));
}

TEST_F(LoaderTest, ThreadsAndPrefetchChangeNothing) {
  std::map<int, std::string> words;
  for (int i = 0; i < 40; i += 5) words[i] = "slow";
  for (int i = 3; i < 40; i += 11) words[i] = "bad";
  const Dataset rows = data(40, words);
  Loader plain(rows, processor_, {.batch_size = 3, .num_workers = 0});
  const Batches want = drain(plain);
  for (const int workers : {1, 2, 4}) {
    for (const int64_t prefetch : {1, 7}) {
      Loader loader(rows, processor_, {.batch_size = 3, .num_workers = workers, .prefetch = prefetch});
      EXPECT_EQ(drain(loader), want) << workers << " workers, prefetch " << prefetch;
      EXPECT_EQ(loader.skipped_rows(), 4);
      EXPECT_EQ(loader.skipped_reasons(), plain.skipped_reasons());
    }
  }
}

TEST_F(LoaderTest, WorkersRunSideBySideButNoFurtherAheadThanAsked) {
  std::map<int, std::string> words;
  for (int i = 0; i < 16; ++i) words[i] = "slow";
  const Dataset rows = data(16, words);
  Loader loader(rows, processor_, {.batch_size = 1, .num_workers = 3, .prefetch = 3});
  ASSERT_TRUE(loader.next().has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LE(processor_.started(), 4);  // one delivered, three ahead
  EXPECT_GE(processor_.most_busy(), 2);
}

TEST_F(LoaderTest, ResumesAtTheExactRow) {
  const Dataset rows = data(50);
  const LoaderOptions options{.batch_size = 2, .rank = 1, .world = 2, .seed = 7, .num_workers = 2};
  Loader whole(rows, processor_, options);
  whole.seek({.epoch = 3, .rows = 0});
  const Batches want = drain(whole);
  ASSERT_EQ(want.size(), 13U);
  Loader part(rows, processor_, options);
  part.seek({.epoch = 3, .rows = 0});
  LoaderCursor after;
  for (int i = 0; i < 5; ++i) after = part.next()->after;
  EXPECT_EQ(after, (LoaderCursor{.epoch = 3, .rows = 20}));
  EXPECT_EQ(part.cursor(), after);
  Loader resumed(rows, processor_, options);
  resumed.seek(after);
  EXPECT_EQ(drain(resumed), Batches(want.begin() + 5, want.end()));
}

TEST_F(LoaderTest, ResumesAtAnotherWorldSizeWithoutLosingOrRepeatingARow) {
  const Dataset rows = data(37);
  std::vector<int> seen;
  LoaderCursor cursor{.epoch = 1, .rows = 0};
  for (int step = 0; step < 3; ++step) {
    LoaderCursor after;
    for (int rank = 0; rank < 2; ++rank) {
      Loader loader(rows, processor_, {.batch_size = 3, .rank = rank, .world = 2});
      loader.seek(cursor);
      const auto batch = loader.next();
      after = batch->after;
      for (const int n : numbers(*batch)) seen.push_back(n);
    }
    cursor = after;
  }
  EXPECT_EQ(cursor.rows, 18);
  for (int rank = 0; rank < 5; ++rank) {
    Loader loader(rows, processor_, {.batch_size = 1, .rank = rank, .world = 5, .num_workers = 0});
    loader.seek(cursor);
    for (const auto& batch : drain(loader)) seen.insert(seen.end(), batch.begin(), batch.end());
  }
  std::sort(seen.begin(), seen.end());
  std::vector<int> all(37);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

TEST_F(LoaderTest, WhatFillsNoBatchIsLeftOutFromWhereTheEpochGoesOn) {
  const Dataset rows = data(23);
  for (const int workers : {0, 2}) {
    Loader loader(rows, processor_, {.batch_size = 8, .shuffle = false, .num_workers = workers, .drop_last = true});
    EXPECT_EQ(drain(loader).size(), 2U);
    EXPECT_EQ(loader.rows_per_epoch(), 16);
    loader.seek({.epoch = 0, .rows = 10});  // where batches of 5 or 10 have left off
    EXPECT_EQ(drain(loader), (Batches{{10, 11, 12, 13, 14, 15, 16, 17}}));
    EXPECT_EQ(loader.cursor(), (LoaderCursor{.epoch = 0, .rows = loader.epoch_end(10)}));
    loader.seek({.epoch = 0, .rows = 20});
    EXPECT_EQ(loader.epoch_end(20), 20);
    EXPECT_FALSE(loader.next().has_value());
  }
}

TEST_F(LoaderTest, TheEpochsEndIsACursorToo) {
  const Dataset rows = data(4);
  Loader loader(rows, processor_, {.batch_size = 3});
  loader.next();
  const auto last = loader.next();
  EXPECT_EQ(last->after, (LoaderCursor{.epoch = 0, .rows = 4}));
  EXPECT_FALSE(loader.next().has_value());
  loader.seek(last->after);
  EXPECT_FALSE(loader.next().has_value());
  loader.seek({.epoch = 1, .rows = 0});
  EXPECT_EQ(drain(loader).size(), 2U);
  EXPECT_THROW(loader.seek({.epoch = 0, .rows = 5}), UserError);
}

TEST_F(LoaderTest, SkipsAndCountsWhatCannotBeUsed) {
  const Dataset rows = data(6, {{1, "bad"}, {2, "bad"}});
  Loader loader(rows, processor_, {.batch_size = 2, .shuffle = false, .process = {.max_length = 4}});
  const auto first = loader.next();
  EXPECT_EQ(numbers(*first), (std::vector<int>{0}));
  ASSERT_EQ(first->skipped.size(), 1U);
  EXPECT_EQ(drain(loader), (Batches{{3}, {4}}));
  EXPECT_EQ(loader.skipped_rows(), 3);
  const auto reasons = loader.skipped_reasons();
  ASSERT_EQ(reasons.size(), 3U);
  EXPECT_TRUE(reasons[0].ends_with("rows.jsonl:2: no such image"));
  EXPECT_TRUE(reasons[2].ends_with("rows.jsonl:6: too long"));
}

TEST_F(LoaderTest, KeepsOnlyTheFirstTwentyReasons) {
  std::map<int, std::string> words;
  for (int i = 0; i < 30; ++i) words[i] = "bad";
  const Dataset rows = data(30, words);
  Loader loader(rows, processor_, {.batch_size = 30});
  EXPECT_TRUE(loader.next()->rows.empty());
  EXPECT_EQ(loader.skipped_rows(), 30);
  EXPECT_EQ(loader.skipped_reasons().size(), 20U);
}

TEST_F(LoaderTest, StrictThrowsAtTheRowsOwnTurn) {
  const Dataset rows = data(6, {{0, "slow"}, {4, "bad"}});
  Loader loader(rows, processor_, {.batch_size = 2, .shuffle = false, .strict = true, .num_workers = 3});
  EXPECT_EQ(numbers(*loader.next()), (std::vector<int>{0, 1}));
  EXPECT_EQ(numbers(*loader.next()), (std::vector<int>{2, 3}));
  EXPECT_THROW(loader.next(), UserError);
}

TEST_F(LoaderTest, ABugIsNeverSkipped) {
  const Dataset rows = data(4, {{3, "bug"}});
  for (const int workers : {0, 2}) {
    Loader loader(rows, processor_, {.batch_size = 2, .shuffle = false, .num_workers = workers});
    EXPECT_EQ(numbers(*loader.next()), (std::vector<int>{0, 1}));
    EXPECT_THROW(loader.next(), std::logic_error);
  }
}

TEST_F(LoaderTest, EndsAndSeeksWhileWorkersAreBusy) {
  std::map<int, std::string> words;
  for (int i = 0; i < 60; ++i) words[i] = "slow";
  const Dataset rows = data(60, words);
  for (int round = 0; round < 5; ++round) {
    Loader loader(rows, processor_, {.batch_size = 1, .shuffle = false, .num_workers = 4, .prefetch = 8});
    loader.next();
    loader.seek({.epoch = 0, .rows = 30});
    EXPECT_EQ(numbers(*loader.next()), (std::vector<int>{30}));
    loader.seek({.epoch = 0, .rows = 7});
    EXPECT_EQ(numbers(*loader.next()), (std::vector<int>{7}));
  }
  EXPECT_LT(processor_.started(), 5 * 60);
}

TEST_F(LoaderTest, AMicroBatchThatNeverComesIsAnErrorNotASilence) {
  const Dataset rows = data(60, [] {
    std::map<int, std::string> words;
    for (int i = 0; i < 60; ++i) words[i] = "slow";
    return words;
  }());
  Loader loader(rows, processor_, {.batch_size = 60, .patience_s = 1});
  try {
    loader.next();
    FAIL() << "expected an error after one second";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 waited 1 s for micro-batch 0 of epoch 0"), std::string::npos)
        << error.what();
  }
}

TEST_F(LoaderTest, PromptsAreMadeWhenAskedFor) {
  const Dataset rows = data(1);
  Loader loader(rows, processor_, {.prompts = true});
  EXPECT_EQ(loader.next()->rows.at(0).input_ids, (std::vector<int32_t>{0, -1}));
}

TEST_F(LoaderTest, RandomShardingsGiveEveryRowOnceAndAgreeOnTheCursor) {
  constexpr uint64_t kSeed = 99;
  RecordProperty("seed", std::to_string(kSeed));
  SplitMix64 random(kSeed);
  for (int round = 0; round < 30; ++round) {
    const int count = static_cast<int>(1 + random.below(60)), world = static_cast<int>(1 + random.below(6));
    const int64_t batch_size = 1 + random.below(5);
    const Dataset rows = data(count);
    std::vector<int> seen;
    std::vector<LoaderCursor> cursors;
    for (int rank = 0; rank < world; ++rank) {
      Loader loader(rows, processor_,
                    {.batch_size = batch_size, .rank = rank, .world = world, .seed = kSeed, .num_workers = rank % 3});
      std::vector<LoaderCursor> mine;
      while (auto batch = loader.next()) {
        mine.push_back(batch->after);
        for (const int n : numbers(*batch)) seen.push_back(n);
      }
      EXPECT_EQ(static_cast<int64_t>(mine.size()), loader.batches_per_epoch());
      if (rank == 0) cursors = mine;
      EXPECT_EQ(mine, cursors) << "seed " << kSeed << " round " << round;
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << "seed " << kSeed << " round " << round;
  }
}

TEST(BufferedOrder, DrawsEveryRowOnceAndNoneFarFromItsPlace) {
  for (const int64_t buffer : {1, 7, 100, 1000}) {
    const auto order = buffered_order(300, buffer, 5, 0);
    auto sorted = order;
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, epoch_order(300, 0, 0, false));
    for (int64_t i = 0; i < 300; ++i) EXPECT_LT(order[static_cast<size_t>(i)], i + buffer);
    EXPECT_EQ(order, buffered_order(300, buffer, 5, 0));
    EXPECT_EQ(order == buffered_order(300, buffer, 5, 1), buffer == 1);
  }
}

}  // namespace
}  // namespace lockstep
