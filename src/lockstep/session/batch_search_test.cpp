#include "lockstep/session/batch_search.h"

#include <random>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

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

}  // namespace
}  // namespace lockstep
