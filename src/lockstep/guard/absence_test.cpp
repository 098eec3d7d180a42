#include "lockstep/guard/absence.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Of node 1, which has been away from second 10 to second 30.
class AwayTest : public testing::Test {
 protected:
  AwayTest() {
    for (int i = 0; i <= 100; ++i) EXPECT_EQ(absence_.look(milliseconds(100 * i)), std::nullopt);
    EXPECT_EQ(absence_.look(seconds(30)), 20);
    EXPECT_EQ(absence_.look(milliseconds(30'025)), std::nullopt);
  }
  Diagnosis explained(Fault fault, const RankSet& culprits, int code = 6, seconds now = seconds(31),
                      int nodes = 2) const {
    return absence_.explained({.fault = fault, .culprits = culprits, .headline = "found", .exit_code = code},
                              {.number = 1, .num_nodes = nodes, .ranks = {2, 3}}, now);
  }
  Absence absence_;
};

TEST_F(AwayTest, WhatTheOthersMadeOfItIsItsOwnDoing) {
  for (const auto& [fault, culprits] : {std::pair{Fault::kLostNode, RankSet{0, 1}},
                                        {Fault::kTransport, RankSet{2}},
                                        {Fault::kError, RankSet{0}},
                                        {Fault::kDeath, RankSet{0}},
                                        {Fault::kEarlyEnd, RankSet{1}}}) {
    const Diagnosis told = explained(fault, culprits);
    EXPECT_EQ(told.culprits, RankSet({2, 3}));
    EXPECT_TRUE(told.headline.starts_with("node 1 (") && told.headline.ends_with(") was away for 20s: ranks 2, 3"))
        << told.headline;
    EXPECT_NE(told.why.find("have given it up meanwhile (found)"), std::string::npos) << told.why;
    EXPECT_EQ(told.exit_code, 6);
  }
}

TEST_F(AwayTest, WhatHasOtherCausesStays) {
  EXPECT_EQ(explained(Fault::kDeath, {2}).headline, "found") << "a rank of its own has died";
  EXPECT_EQ(explained(Fault::kMismatch, {0}).headline, "found");
  EXPECT_EQ(explained(Fault::kError, {0}, 3).headline, "found") << "broken data";
  EXPECT_EQ(explained(Fault::kLostNode, {0}, 6, seconds(50)).headline, "found") << "long after";
  EXPECT_EQ(explained(Fault::kTransport, {2}, 6, seconds(31), 1).headline, "found") << "there is no other node";
  EXPECT_EQ(Absence().explained({.headline = "found"}, {.num_nodes = 2}, seconds(31)).headline, "found");
}

TEST_F(AwayTest, WhatWasWaitedMeanwhileDoesNotCount) {
  JudgeOptions options{.soft_seconds = 3, .start_seconds = 7};
  options.hard_seconds.fill(60);
  const JudgeOptions soon = absence_.allowing(options, seconds(89)), later = absence_.allowing(options, seconds(91));
  EXPECT_EQ(soon.soft_seconds, 23);
  EXPECT_EQ(soon.start_seconds, 27);
  EXPECT_EQ(soon.hard_seconds.front(), 80);
  EXPECT_EQ(later.soft_seconds, 3);
  EXPECT_EQ(later.hard_seconds.front(), 60);
}

}  // namespace
}  // namespace lockstep
