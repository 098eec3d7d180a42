#include "lockstep/session/batch_search.h"

#include <chrono>
#include <new>
#include <random>
#include <thread>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// A program that needs `base` bytes and `a_row` for each row; beyond `wall` the allocator gives up.
struct Machine {
  int64_t base, a_row, wall = INT64_MAX;
  std::optional<int64_t> operator()(int64_t batch) const {
    const int64_t bytes = base + a_row * batch;
    return bytes > wall ? std::nullopt : std::optional(bytes);
  }
};

TEST(BatchSearch, FindsTheLargestOfALinearNeedWithFewTries) {
  const auto choice = search_batch_size({.limit_bytes = 1000, .largest = 100000}, Machine{100, 3});
  EXPECT_EQ(choice.batch, 300);
  EXPECT_LE(choice.tries.size(), 8U);
  for (const auto& one : choice.tries) EXPECT_TRUE(one.fits) << one.rows;  // it never had to fail
}

TEST(BatchSearch, StopsAtTheRowsThatThereAre) {
  EXPECT_EQ(search_batch_size({.limit_bytes = 1000, .largest = 7}, Machine{100, 3}).batch, 7);
  EXPECT_EQ(search_batch_size({.limit_bytes = 1000, .largest = 1}, Machine{100, 3}).batch, 1);
}

TEST(BatchSearch, NeverChoosesWhatDidNotFitAndComesWithinASixteenth) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    const auto base = static_cast<int64_t>(random() % 500), a_row = static_cast<int64_t>(1 + random() % 40);
    const auto step = static_cast<int64_t>(random() % 60);  // allocators take memory in steps
    const auto need = [&](int64_t batch) -> std::optional<int64_t> {
      const int64_t bytes = base + a_row * batch;
      return step == 0 ? bytes : (bytes + step - 1) / step * step;
    };
    const int64_t limit = 600 + static_cast<int64_t>(random() % 4000);
    int64_t best = 1;
    while (*need(best + 1) <= limit && best < 1000) ++best;
    if (*need(1) > limit) continue;
    const auto choice = search_batch_size({.limit_bytes = limit, .largest = 1000}, need);
    EXPECT_LE(choice.batch, best);
    EXPECT_GE(choice.batch + std::max<int64_t>(1, choice.batch / 16), best) << "round " << round;
    EXPECT_LE(choice.tries.size(), 24U);
  }
}

TEST(BatchSearch, OutOfMemoryCountsAsTooLarge) {
  const auto choice = search_batch_size({.limit_bytes = 1000000, .largest = 100000}, Machine{100, 3, 1000});
  EXPECT_LE(choice.batch, 300);
  EXPECT_GE(choice.batch, 280);
}

TEST(BatchSearch, SaysSoWhenOneRowDoesNotFit) {
  try {
    search_batch_size({.limit_bytes = 50, .largest = 10}, Machine{100, 3});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kMemory);
    EXPECT_NE(error.message().find("one row"), std::string::npos);
  }
}

/// What both of two ranks, threads on a CPU, find; what one throws is written as "code: message".
std::vector<std::string> found_by_two(const std::function<int64_t(Job& job)>& search) {
  const auto rendezvous = Rendezvous::in_process();
  std::vector<std::string> found(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      Job job{.world = {.rank = r, .size = 2, .local_rank = r, .local_size = 2, .source = "threads"}};
      job.comm =
          connect_over(job.world, *rendezvous, {.transport = Transport::kShm, .patience = std::chrono::seconds(5)});
      std::string& here = found[static_cast<size_t>(r)];
      try {
        here = std::to_string(search(job));
      } catch (const Error& error) {
        here = std::to_string(static_cast<int>(error.code())) + ": " + error.message();
      }
    });
  }
  ranks.clear();  // joins
  return found;
}

/// Each rank leaves so many gathers under way when its second row finds no memory.
std::vector<std::string> found_with_calls(const std::vector<int>& calls_of_rank) {
  return found_by_two([&](Job& job) {
    const Tensor shard = zeros({4}, Dtype::kF32), full = zeros({8}, Dtype::kF32);
    std::vector<Pending> under_way;
    return agree_batch_size(job, 0.9, 8, {}, [&](int64_t batch) -> int64_t {
      if (batch == 1) return 0;
      for (int i = calls_of_rank.at(static_cast<size_t>(job.world.rank)); i > 0; --i) {
        under_way.push_back(job.data().all_gather(full, shard, "gather"));
      }
      throw std::bad_alloc();
    });
  });
}

TEST(BatchSearch, RanksThatFoundNoMemoryGoOnWhereTheyStandAtOneCall) {
  EXPECT_EQ(found_with_calls({1, 1}), (std::vector<std::string>{"1", "1"}));
  const auto parted = found_with_calls({1, 2});
  EXPECT_EQ(
      parted[0],
      "5: batch size auto: there was not memory enough for 2 rows, with which rank 0 came to call #1 and rank 1 to "
      "call #2: they cannot go on together");
  EXPECT_EQ(parted[1], parted[0]);
}

TEST(BatchSearch, WhatIsForeseenIsAskedOnOneRankAndHasAMargin) {
  const auto search = [](int64_t most_rows) {
    return found_by_two([=](Job& job) {
      const int64_t limit = agree_limit(job, 0.5);
      return foresee_batch_size(job, 0.5, 8, {}, [&, rank = job.world.rank](int64_t batch) {
        EXPECT_EQ(rank, 0);
        return batch <= most_rows ? limit / 2 : 2 * limit;
      });
    });
  };
  EXPECT_EQ(search(5), (std::vector<std::string>{"5", "5"}));
  for (const auto& refused : search(0)) {
    EXPECT_NE(refused.find("batch size auto: one row needs"), std::string::npos) << refused;
  }
  struct Listener final : EventSink {
    void on(const Event& event) override { tries = std::get<BatchSized>(event).tries; }
    std::vector<BatchTry> tries;
  } listener;
  found_by_two([&](Job& job) {
    EventBus events;
    if (job.reports()) events.add(listener);
    return foresee_batch_size(job, 0.5, 1, events, [](int64_t) { return int64_t{1000}; });
  });
  ASSERT_EQ(listener.tries.size(), 1U);
  EXPECT_EQ(listener.tries[0].bytes, 1030);
}

TEST(BatchSearch, NoBatchIsTriedWhereCallsBetweenGpusCouldPartTheRanks) {
  Job job;
  Plan plan;
  plan.options.training = true;
  EXPECT_FALSE(tries_may_part(job, plan));
  job.device = "cuda:0";
  EXPECT_FALSE(tries_may_part(job, plan));
  job.world.size = 2;
  EXPECT_TRUE(tries_may_part(job, plan));
  plan.options.training = false;
  EXPECT_FALSE(tries_may_part(job, plan)) << "nothing is sent";
}

}  // namespace
}  // namespace lockstep
