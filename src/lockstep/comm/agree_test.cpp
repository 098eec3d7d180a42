#include "lockstep/comm/agree.h"

#include <gtest/gtest.h>

#include "lockstep/base/failure.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

TEST(Agree, WhatDiffersIsTheSameErrorOnEveryRank) {
  std::vector<std::string> errors(3);
  run_ranks(3, [&](Rank& rank) {
    agree_on(rank.control(), {{"version", "1"}, {"data set", "ab"}});
    try {
      agree_on(rank.control(), {{"version", "1"}, {"data set", rank.id() == 2 ? "cd" : "ab"}});
    } catch (const SharedError& error) {
      errors[static_cast<size_t>(rank.id())] = error.message();
    }
    rank.control().barrier("the communicator still works");
  });
  EXPECT_EQ(errors[0], "the ranks do not agree on the data set: rank 0 has ab, rank 2 has cd");
  EXPECT_EQ(errors, std::vector<std::string>(3, errors[0]));
}

TEST(Agree, RankZeroSaysWhatAllTake) {
  run_ranks(2, [](Rank& rank) {
    EXPECT_EQ(from_rank_0(rank.control(), "rank " + std::to_string(rank.id()), "folder"), "rank 0");
  });
}

}  // namespace
}  // namespace lockstep
