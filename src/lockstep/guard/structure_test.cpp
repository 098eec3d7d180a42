#include "lockstep/guard/structure.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/recorder.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

Json shown(const std::string& label, const Json& nodes) {
  return {{"label", label},
          {"title", "labels"},
          {"nodes", nodes},
          {"names", {{"[1]", "metadata"}}},
          {"fixes", {{"[1]", "leave metadata out"}}},
          {"note", "rows are collated by collate at train.py:12"}};
}

const Json kTwo = Json::parse(
    R"([["", "a tuple of 2"], ["[0]", "a tensor"], ["[1]", "a tuple of 2"], ["[1][0]", "a tensor"], ["[1][1]", "a tensor"]])");
const Json kOne = Json::parse(
    R"([["", "a tuple of 2"], ["[0]", "a tensor"], ["[1]", "a tuple of 2"], ["[1][0]", "a tensor"], ["[1][1]", "None"]])");

TEST(Structure, TheFirstNodeThatIsNotAlikeIsNamedWithItsField) {
  const auto two = structure_from(shown("labels 1", kTwo).dump()), one = structure_from(shown("labels 2", kOne).dump());
  ASSERT_TRUE(two && one);
  const auto found = first_difference(*one, *two);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "labels[1][1] (\"metadata\")");
  EXPECT_EQ(found->mine, "None");
  EXPECT_EQ(found->theirs, "a tensor");
  EXPECT_EQ(found->fix, "leave metadata out");
  EXPECT_FALSE(first_difference(*one, *one));
}

TEST(Structure, TheSameValuesInAnotherOrderAreADifference) {
  const auto one =
      structure_from(shown("labels 1", Json::parse(R"([["", "a dict of 2"], [".a", "x"], [".b", "x"]])")).dump());
  const auto two =
      structure_from(shown("labels 2", Json::parse(R"([["", "a dict of 2"], [".b", "x"], [".a", "x"]])")).dump());
  const auto found = first_difference(*one, *two);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "labels.a");
  EXPECT_EQ(found->mine, "number 2 of the values");
  EXPECT_EQ(found->theirs, "number 3 of the values");
}

TEST(Structure, ANodeThatOneSideLacksIsADifference) {
  auto two = *structure_from(shown("labels 1", kTwo).dump());
  auto one = two;
  one.nodes.pop_back();
  EXPECT_EQ(first_difference(one, two)->mine, "nothing");
  EXPECT_EQ(first_difference(two, one)->theirs, "nothing");
}

TEST(Structure, WhatStandsForItselfIsComparedAlsoUnderAnotherTitle) {
  Json losses = shown("losses 1", Json::parse(R"([["", "a tensor"], ["batch['metadata']", "a tensor"]])"));
  losses["title"] = "losses";
  const auto other =
      *structure_from(shown("labels 1", Json::parse(R"([["", "None"], ["batch['metadata']", "nothing"]])")).dump());
  const auto found = first_difference(other, *structure_from(losses.dump()));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "batch['metadata']");
}

TEST(Structure, ABoardKeepsTheLatestThatDiffer) {
  Recorder recorder;
  const auto show = [&](int i) {
    recorder.show_structure("s" + std::to_string(i), "{\"label\": \"s" + std::to_string(i) + "\"}");
  };
  for (int i = 0; i < 3; ++i) {
    show(i);
    show(i);
  }
  EXPECT_EQ(read_board(recorder.board(), 1).structures.size(), 3u);
  for (int i = 3; i < 40; ++i) show(i);
  const auto kept = read_board(recorder.board(), 1).structures;
  EXPECT_EQ(kept.size(), recorder.board().structures.size());
  EXPECT_NE(std::ranges::find(kept, R"({"label": "s39"})"), kept.end());
  EXPECT_EQ(std::ranges::find(kept, R"({"label": "s3"})"), kept.end());
}

TEST(Structure, WhatIsToldOfAPassTakesThePlaceOfWhatWasToldBefore) {
  Recorder recorder;
  for (const char* note : {"skipped vision_tower", ""}) {
    recorder.show_structure(kModulesRemark, Json({{"label", kModulesRemark}, {"note", note}}).dump());
    recorder.show_structure("another", "{}");
  }
  const auto kept = read_board(recorder.board(), 1).structures;
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0], R"({"label":"modules","note":""})");
}

TEST(Structure, TellsWhichModulesARankHasLeftOutThatItsCallsDoNotName) {
  const auto said = [](int skips, int world, const std::string& others) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) {
      const std::string note = rank == skips ? "skipped vision_tower, which came before head" : others;
      RankReport report = running_rank(rank, world);
      add_calls(report,
                {test_call(rank == skips ? Op::kAllGather : Op::kReduceScatter, "f32", {2}, "", "train.py:40")});
      report.structures = {Json({{"label", kModulesRemark}, {"nodes", Json::array()}, {"note", note}}).dump()};
      reports.push_back(report_from_json(to_json(report)));
    }
    return judge_mismatch(census_of(reports)).diagnosis;
  };
  const Diagnosis one = said(1, 3, "");
  EXPECT_EQ(one.headline, "rank 1 skipped vision_tower, which came before head");
  EXPECT_NE(one.why.find("all_gather beside reduce_scatter"), std::string::npos) << one.why;
  EXPECT_NE(one.fix.find("dummy input"), std::string::npos) << one.fix;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(said(rank, 2, "").headline, fmt::format("rank {} skipped vision_tower, which came before head", rank));
  }
  EXPECT_EQ(said(1, 3, "skipped vision_tower, which came before head").headline.find("skipped"), std::string::npos)
      << "all of them did";
}

TEST(Structure, AnythingElseIsNone) {
  for (const char* text :
       {"", "[]", "{}", R"({"nodes": 3})", R"({"nodes": [[1, 2]]})", R"({"nodes": [["a"]]})", "{\"nodes\": [[\""}) {
    EXPECT_FALSE(structure_from(text)) << text;
  }
}

TEST(Structure, TellsWhereRanksThatGatherOtherNestsDiffer) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    RankReport report = running_rank(rank, 3);
    const std::string label = rank == 1 ? "labels #2" : "labels #1";
    add_calls(report, {test_call(Op::kAllGather, "i64", {2}, label, "train.py:40")});
    report.structures = {"{}", shown(label, rank == 1 ? kOne : kTwo).dump()};
    reports.push_back(report_from_json(to_json(report)));
  }
  const Diagnosis found = judge_mismatch(census_of(reports)).diagnosis;
  EXPECT_EQ(found.culprits, RankSet{1});
  EXPECT_EQ(
      found.headline,
      "rank 1 holds another structure: labels[1][1] (\"metadata\") is None there, where ranks 0, 2 have a tensor");
  EXPECT_EQ(found.fix, "leave metadata out");
  EXPECT_NE(found.why.find("train.py:12"), std::string::npos);
  reports[1].structures = {shown("of an earlier call", kOne).dump()};
  EXPECT_EQ(judge_mismatch(census_of(reports)).diagnosis.headline.find("structure"), std::string::npos)
      << "not of this call";
}

TEST(Structure, ParametersAreNotToldToBeGathered) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    RankReport report = running_rank(rank, 3);
    const std::string label = rank == 1 ? "parameters #2" : "parameters #1";
    add_calls(report, {test_call(Op::kAllGather, "i64", {2}, label, "ddp.py:40")});
    const Json node = Json::array({".base.weight", rank == 1 ? "float32[4, 3], frozen" : "float32[4, 3]"});
    const Json nodes = Json::array({node});
    report.structures = {Json({{"label", label}, {"title", "parameters of Net"}, {"nodes", nodes}}).dump()};
    reports.push_back(report);
  }
  const Diagnosis found = judge_mismatch(census_of(reports)).diagnosis;
  EXPECT_NE(found.headline.find("parameters of Net.base.weight is float32[4, 3], frozen there"), std::string::npos)
      << found.headline;
  EXPECT_EQ(found.why.find("gathered"), std::string::npos) << found.why;
  EXPECT_NE(found.fix.find("freeze the same of it"), std::string::npos) << found.fix;
}

/// Three ranks in one call at one line, of which rank 1 has its own label and size; each shows what it holds, if anything.
std::vector<RankReport> in_one_call(const std::string& label, const std::string& others, const Json& held = {}) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    RankReport report = running_rank(rank, 3);
    const std::string& own = rank == 1 ? label : others;
    add_calls(report, {test_call(Op::kReduceScatter, "f32", {rank == 1 ? 27 : 81}, own, "train.py:33")});
    if (held.is_array()) {
      report.structures = {Json({{"label", own}, {"title", "batch"}, {"nodes", held[rank == 1 ? 1 : 0]}}).dump()};
    }
    reports.push_back(report);
  }
  return reports;
}

// Between the parts of a step a Trainer tells no phase, and gathers how many labels there are.
TEST(Structure, OfARankThatEvaluatesAloneIsNotTheFault) {
  const Json held = Json::parse(R"([[["", "int64 tensor, 0-d"]], [["labels", "int64 tensor, 1-d"]]])");
  auto reports = in_one_call("values #1", "values #2", held);
  for (const Phase phase : {Phase::kRun, Phase::kEvaluate}) {
    for (auto& report : reports) report.phase = report.rank == 1 ? Phase::kEvaluate : phase;
    const std::string headline = judge_mismatch(census_of(reports)).diagnosis.headline;
    EXPECT_EQ(headline.find("elsewhere: evaluating") != std::string::npos, phase == Phase::kRun) << headline;
  }
}

TEST(Labels, OfTwoModulesAreNotToldToBePadded) {
  const Diagnosis found =
      judge_mismatch(census_of(in_one_call("root module gradient", "projector gradient"))).diagnosis;
  EXPECT_TRUE(found.headline.starts_with("rank 1 sent another shape")) << found.headline;
  EXPECT_NE(found.fix.find("requires_grad"), std::string::npos) << found.fix;
  EXPECT_EQ(found.fix.find("pad"), std::string::npos) << found.fix;
}

TEST(NewGroups, OfOtherRanksAreNamed) {
  const auto reports = [](bool stuck) {
    std::vector<RankReport> all;
    for (int rank = 0; rank < 3; ++rank) {
      RankReport report = running_rank(rank, 3);
      add_calls(report, {test_call(Op::kNewGroup, "", {}, rank == 1 ? "ranks 0, 2" : "ranks 0, 1", "groups.py:4"),
                         test_call(Op::kAllReduce, "f32", {2}, "", "groups.py:9")});
      if (stuck) report.groups[0].tail.back().state = CallState::kLaunched;
      all.push_back(report);
    }
    return all;
  };
  const Diagnosis found = judge_mismatch(census_of(reports(true))).diagnosis;
  EXPECT_EQ(found.headline, "rank 1 made a group of ranks 0, 2 where ranks 0, 2 made one of ranks 0, 1");
  EXPECT_NE(found.fix.find("pass the same ranks"), std::string::npos) << found.fix;
}

}  // namespace
}  // namespace lockstep
