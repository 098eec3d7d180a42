#include "lockstep/guard/splits.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/recorder.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

/// Three ranks in an all_to_all; `sends[a][b]` goes from a to b, and `takes[b][a]` is awaited there.
std::vector<RankReport> ranks_with(const std::vector<std::vector<int64_t>>& sends,
                                   const std::vector<std::vector<int64_t>>& takes) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    const auto at = static_cast<size_t>(rank);
    RankReport report = running_rank(rank, 3);
    add_calls(report, {test_call(Op::kAllToAll, "", {}, "", "moe.py:7")});
    report.structures = {splits_text({rank, "data", 1, {0, 1, 2}, sends[at], takes[at]}), "{}", "[\"splits \"]"};
    reports.push_back(report_from_json(to_json(report)));
  }
  return reports;
}

const std::vector<std::vector<int64_t>> kSends{{0, 3, 1}, {2, 0, 4}, {5, 6, 0}},
    kTakes{{0, 2, 5}, {3, 0, 6}, {1, 4, 0}};

TEST(Splits, WhatOneSendsAndAnotherDoesNotTakeIsToldOfBoth) {
  EXPECT_FALSE(differing_splits(census_of(ranks_with(kSends, kTakes))));
  auto takes = kTakes;
  takes[1][0] = 7;
  auto reports = ranks_with(kSends, takes);
  const auto found = differing_splits(census_of(reports));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->headline, "rank 0 sends 3 numbers to rank 1 in all_to_all, which takes 7 from it");
  EXPECT_EQ(found->culprits, (RankSet{0, 1}));
  EXPECT_NE(found->fix.find("moe.py:7"), std::string::npos);
  EXPECT_EQ(judge(census_of(reports), {}).diagnosis.headline, found->headline);
  reports[1].groups[0].tail[0].history ^= 1;
  EXPECT_FALSE(differing_splits(census_of(reports))) << "that is another call";
}

TEST(Splits, OneThatFitsWithNoneIsTheCulprit) {
  auto takes = kTakes;
  takes[1] = {9, 0, 9};
  const auto found = differing_splits(census_of(ranks_with(kSends, takes)));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->culprits, RankSet{1});
}

TEST(Splits, ABoardShowsTheLatestTwo) {
  Recorder recorder;
  for (uint64_t seq = 1; seq < 40; ++seq) {
    const Splits one{0, "data", seq, {0, 1}, {1, 2}, {1, 2}};
    recorder.show_structure(splits_label(one), splits_text(one));
  }
  const auto kept = read_board(recorder.board(), 1).structures;
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(splits_from(kept[0])->seq, 39U);
  EXPECT_EQ(splits_from(kept[1])->seq, 38U);
}

TEST(Splits, RanksThatStandAlikeAreToldApart) {
  Census census;
  for (const auto& report : ranks_with({{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}))
    census.add(report);
  EXPECT_EQ(census.classes.size(), 3U);
}

TEST(Splits, AnythingElseIsNone) {
  for (const char* text :
       {"splits ", "{\"label\": \"splits 0\"}",
        R"({"label": "splits 0", "rank": "a", "group": "g", "seq": 1, "ranks": [], "sends": [], "receives": []})",
        R"({"label": "splits 0", "rank": 1, "group": "g", "seq": 1, "ranks": [0.5], "sends": [], "receives": []})"}) {
    EXPECT_FALSE(splits_from(text)) << text;
  }
}

}  // namespace
}  // namespace lockstep
