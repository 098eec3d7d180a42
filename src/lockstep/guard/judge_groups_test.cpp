// Groups in which not all ranks are, calls between two ranks, and calls of one shape that only their lines tell apart.
#include <gtest/gtest.h>

#include "lockstep/guard/local_ranks.h"
#include "lockstep/guard/recorder.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

TestCall all_reduce(std::string site, int64_t size = 4) {
  return test_call(Op::kAllReduce, "f32", {size}, "", std::move(site), ReduceOp::kSum);
}

TestCall between(Op op, int peer, int64_t size, std::string site) {
  return test_call(op, "f32", {size}, "", std::move(site), ReduceOp::kNone, peer);
}

std::vector<RankReport> ranks(int count) {
  std::vector<RankReport> all;
  for (int rank = 0; rank < count; ++rank) all.push_back(running_rank(rank, count));
  return all;
}

GroupReport& wait_in(RankReport& rank, const TestCalls& calls, const std::string& group, RankSet members) {
  GroupReport& made = add_calls(rank, calls, group);
  made.members = std::move(members);
  wait_in_last(made, 5);
  return made;
}

TEST(JudgeGroups, ARankIsNotLateForAGroupThatItIsNotIn) {
  auto all = ranks(4);
  for (const int rank : {0, 2})
    wait_in(all[static_cast<size_t>(rank)], {all_reduce("a.py:1")}, "1 of ranks 0, 2, 3", {0, 2, 3});
  const Judgement found = judge(census_of(all), {.soft_seconds = 3});
  EXPECT_EQ(found.verdict, Verdict::kNotice);
  EXPECT_EQ(found.diagnosis.culprits, RankSet{3}) << found.diagnosis.text();
}

TEST(JudgeGroups, ARankThatEndsWhileItsGroupWaitsIsNamedAndOthersMayEnd) {
  auto all = ranks(4);
  all[1].life = Life::kFinished;  // of another group
  wait_in(all[0], {all_reduce("a.py:1")}, "1 of ranks 0, 2", {0, 2});
  EXPECT_EQ(judge(census_of(all)).diagnosis.fault, Fault::kStall);
  all[2].life = Life::kFinished;
  const Judgement found = judge(census_of(all));
  EXPECT_EQ(found.diagnosis.fault, Fault::kEarlyEnd);
  EXPECT_EQ(found.diagnosis.culprits, RankSet{2});
}

TEST(JudgeGroups, GroupsOfOneNameAndOtherRanksAreTwo) {
  auto all = ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    const bool first = rank < 2;
    GroupReport& group = add_calls(all[static_cast<size_t>(rank)], {all_reduce("a.py:1", first ? 4 : 8)},
                                   first ? "1 of ranks 0, 1" : "1 of ranks 2, 3");
    group.members = first ? RankSet{0, 1} : RankSet{2, 3};
  }
  EXPECT_EQ(judge_mismatch(census_of(all)).verdict, Verdict::kFine);
}

// One rank sends under more tags than another takes by: its board is full sooner, and what it does then nobody sees.
TEST(JudgeGroups, ARankWithoutRoomForAGroupIsNotMissedThere) {
  for (const bool pair : {false, true}) {
    auto all = ranks(3);
    wait_in(all[1], {pair ? between(Op::kRecv, 0, 4, "a.py:5") : all_reduce("a.py:5")}, "of two", {0, 1});
    EXPECT_EQ(judge(census_of(all)).diagnosis.culprits, RankSet{0});
    wait_in(all[0], {all_reduce("a.py:9")}, "default", {});
    EXPECT_EQ(judge(census_of(all)).diagnosis.fault, Fault::kDeadlock);
    all[0].no_room = Board::kNoPairs;
    EXPECT_EQ(judge(census_of(all)).diagnosis.fault, pair ? Fault::kStall : Fault::kDeadlock);
    all[0].no_room |= Board::kNoGroups;
    const Diagnosis found = judge(census_from_json(to_json(census_of(all)))).diagnosis;
    EXPECT_EQ(found.fault, Fault::kStall) << found.text();
    EXPECT_EQ(found.culprits, (RankSet{1, 2})) << "they are awaited where rank 0 is seen";
    all[0].groups.clear();
    EXPECT_EQ(judge(census_of(all)).verdict, Verdict::kFine) << "nor does its transport stand: " << found.text();
  }
}

// To take from anybody closes the group: whoever sends there waits for what nobody sees.
TEST(JudgeGroups, ATransportIsNotSlowWhereARankMayNotHaveCome) {
  auto all = ranks(2);
  wait_in(all[1], {between(Op::kSend, 0, 4, "a.py:5")}, "1 to 0", {0, 1});
  add_calls(all[0], {}, "1 to 0").entered = kUnseen;
  EXPECT_EQ(judge(census_of(all)).verdict, Verdict::kFine) << judge(census_of(all)).diagnosis.text();
}

TEST(JudgeGroups, MembersTravelBetweenAgents) {
  auto all = ranks(3);
  wait_in(all[2], {all_reduce("a.py:1")}, "g", {0, 2});
  const Census back = census_from_json(to_json(census_of(all)));
  EXPECT_EQ(back.of(2)->sample.groups.at(0).members, (RankSet{0, 2}));
  Json broken = to_json(all[2]);
  broken["groups"][0]["members"] = Json::parse("[[3, 1]]");
  EXPECT_THROW(report_from_json(broken), Error);
}

TEST(JudgePairs, SendAndReceiveOfOneSizeAgree) {
  auto all = ranks(2);
  add_calls(all[0], {between(Op::kSend, 1, 6, "a.py:1")}, "0 to 1").members = {0, 1};
  add_calls(all[1], {between(Op::kRecv, 0, 6, "a.py:2")}, "0 to 1").members = {0, 1};
  EXPECT_EQ(judge_mismatch(census_of(all)).verdict, Verdict::kFine);
  EXPECT_EQ(judge_lines(census_of(all)).verdict, Verdict::kFine) << "the two lines differ by right";
}

TEST(JudgePairs, WhatIsSentIsNotWhatIsWaitedFor) {
  auto all = ranks(2);
  add_calls(all[0], {between(Op::kSend, 1, 6, "a.py:1")}, "0 to 1").members = {0, 1};
  add_calls(all[1], {between(Op::kRecv, 0, 4, "a.py:2")}, "0 to 1").members = {0, 1};
  const Diagnosis found = judge_mismatch(census_of(all)).diagnosis;
  EXPECT_TRUE(found.between_two);
  EXPECT_NE(found.headline.find("send f32[6] to rank 1"), std::string::npos) << found.headline;
  EXPECT_NE(found.headline.find("recv f32[4] from rank 0"), std::string::npos) << found.headline;
}

TEST(JudgePairs, SendAndReceiveOfTwoTagsDoNotMeet) {
  auto all = ranks(3);
  wait_in(all[0], {between(Op::kSend, 1, 4, "a.py:5")}, "tag 5, 0 to 1", {0, 1});
  wait_in(all[1], {between(Op::kRecv, 0, 4, "a.py:6")}, "tag 6, 0 to 1", {0, 1});
  wait_in(all[2], {all_reduce("a.py:9")}, "default", {});
  const Diagnosis found = judge(census_of(all)).diagnosis;
  EXPECT_EQ(found.fault, Fault::kDeadlock);
  EXPECT_TRUE(found.headline.starts_with("rank 0 sends to rank 1 under another tag")) << found.text();
  EXPECT_NE(found.fix.find("a.py:5"), std::string::npos) << found.text();
}

TEST(JudgePairs, TwoThatReceiveFirstWaitForEachOther) {
  auto all = ranks(3);
  wait_in(all[0], {between(Op::kRecv, 1, 4, "a.py:5")}, "1 to 0", {0, 1});
  wait_in(all[1], {between(Op::kRecv, 0, 4, "a.py:5")}, "0 to 1", {0, 1});
  wait_in(all[2], {all_reduce("a.py:9")}, "default", {});
  const Diagnosis found = judge(census_of(all)).diagnosis;
  EXPECT_EQ(found.fault, Fault::kDeadlock);
  EXPECT_NE(found.headline.find("each receives first"), std::string::npos) << found.text();
  EXPECT_FALSE(found.culprits.contains(2));
}

// A sends to B, which goes on, and C waits for A. The circle closes over B: nothing there says who is wrong.
TEST(JudgePairs, WhoNamesAnotherRankThanTheOneThatWaitsForItIsTold) {
  for (const bool sends : {true, false}) {
    auto all = ranks(3);
    const auto call = [&](bool send, int peer, const char* site) {
      return between(send ? Op::kSend : Op::kRecv, peer, 4, site);
    };
    wait_in(all[0], {all_reduce("a.py:9")}, "default", {});
    wait_in(all[1], {call(sends, 0, "a.py:5")}, sends ? "1 to 0" : "0 to 1", {0, 1});
    wait_in(all[2], {call(!sends, 1, "a.py:7")}, sends ? "1 to 2" : "2 to 1", {1, 2});
    const Diagnosis found = judge(census_of(all)).diagnosis;
    EXPECT_EQ(found.fault, Fault::kDeadlock);
    EXPECT_EQ(found.culprits, RankSet{1}) << found.text();
    EXPECT_EQ(found.headline,
              sends
                  ? "rank 1 sends to rank 0, which does not receive from it, while rank 2 waits to receive from rank 1"
                  : "rank 1 waits to receive from rank 0, which does not send to it, while rank 2 sends to rank 1");
    EXPECT_NE(found.fix.find("a.py:5 name rank 2"), std::string::npos) << found.text();
    all[2].groups.clear();
    EXPECT_EQ(judge(census_of(all)).diagnosis.culprits, RankSet{0}) << "nobody else waits: it is left out there";
  }
}

// A firewall between the hosts: all have come to new_group, and it never ends. It may take a while.
TEST(JudgeGroups, AGroupThatIsNotMadeIsToldOf) {
  auto all = ranks(2);
  for (auto& one : all) {
    GroupReport& made =
        wait_in(one, {test_call(Op::kNewGroup, "", {}, "ranks 0, 1", "a.py:5")}, "new_group", RankSet{0, 1});
    made.tail.back().state = CallState::kEntered;
    wait_in_last(made, 29);
  }
  EXPECT_EQ(judge(census_of(all)).verdict, Verdict::kFine);
  for (auto& one : all) wait_in_last(one.groups[0], 31);
  const Judgement found = judge(census_of(all));
  EXPECT_EQ(found.verdict, Verdict::kNotice);
  EXPECT_TRUE(found.diagnosis.headline.starts_with("all ranks came to new_group \"ranks 0, 1\", but it does not end"))
      << found.diagnosis.headline;
}

/// Steps of two calls of one shape, whose lines alone tell them apart.
TestCalls steps_of(int count, const std::string& first = "a.py:1", const std::string& second = "a.py:2") {
  TestCalls calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(all_reduce(first));
    calls.push_back(all_reduce(second));
  }
  return calls;
}

std::vector<RankReport> with_rank_1(const TestCalls& usual, const TestCalls& odd) {
  auto all = ranks(3);
  for (int rank = 0; rank < 3; ++rank) add_calls(all[static_cast<size_t>(rank)], rank == 1 ? odd : usual, "default");
  return all;
}

TEST(JudgeLines, TwoEqualCallsInTheOtherOrderAreTold) {
  TestCalls odd = steps_of(8);
  std::swap(odd[10], odd[11]);
  const Judgement found = judge_lines(census_of(with_rank_1(steps_of(8), odd)));
  EXPECT_EQ(found.verdict, Verdict::kNotice);
  EXPECT_EQ(found.diagnosis.fault, Fault::kLines);
  EXPECT_EQ(found.diagnosis.culprits, RankSet{1});
  EXPECT_EQ(found.diagnosis.seq, 11u);
  EXPECT_NE(found.diagnosis.headline.find("in the other order"), std::string::npos);
}

// A loss is counted in one branch, and nothing in the other: whoever mended a hang so makes one call a step, from either line.
TEST(JudgeLines, BranchesOfWhichEachRankTakesOneAreLeftAlone) {
  TestCalls usual, odd;
  for (const char branch : std::string("121221121212"))
    usual.push_back(all_reduce(branch == '1' ? "a.py:1" : "a.py:2"));
  for (const char branch : std::string("122121121212")) odd.push_back(all_reduce(branch == '1' ? "a.py:1" : "a.py:2"));
  EXPECT_EQ(judge_lines(census_of(with_rank_1(usual, odd))).verdict, Verdict::kFine);
}

TEST(JudgeLines, ACallThatIsMadeFromAnotherLineOnOneRankIsLeftAlone) {
  EXPECT_EQ(judge_lines(census_of(with_rank_1(steps_of(6), steps_of(6, "a.py:1", "b.py:7")))).verdict, Verdict::kFine);
}

TEST(JudgeLines, WhatWasSkippedIsFoundWhereItWas) {
  TestCalls usual = steps_of(6), odd = usual;
  odd.erase(odd.begin() + 7);  // the second call of the fourth step
  usual.push_back(test_call(Op::kBarrier, "", {}, "", "a.py:9"));
  odd.push_back(test_call(Op::kBarrier, "", {}, "", "a.py:9"));
  const Diagnosis found = judge_mismatch(census_of(with_rank_1(usual, odd))).diagnosis;
  EXPECT_EQ(found.seq, 8u) << "not where the barrier was seen: " << found.text();
  EXPECT_NE(found.headline.find("rank 1 skipped a call"), std::string::npos) << found.headline;
  EXPECT_NE(found.why.find("a.py:2"), std::string::npos) << found.why;
}

// The first epoch is shorter on rank 1, and what follows it is of the kind of a call before it, from another line.
TEST(JudgeMismatch, AnEarlierCallFromAnotherLineSaysNothingOfWhatUsedToFollow) {
  const auto calls = [](size_t batches) {
    TestCalls made{test_call(Op::kAllReduce, "f32", {1}, "", "a.py:4")};
    made.insert(made.end(), batches, test_call(Op::kAllGather, "f32", {4}, "", "a.py:6"));
    made.push_back(test_call(Op::kAllReduce, "f32", {1}, "", "a.py:7"));
    return made;
  };
  TestCalls usual = calls(4), odd = calls(3);
  usual.pop_back();  // all stand where they part
  const Diagnosis found = judge_mismatch(census_of(with_rank_1(usual, odd))).diagnosis;
  EXPECT_EQ(found.culprits, RankSet{1});
  EXPECT_EQ(found.headline.find("made a call that"), std::string::npos) << found.headline;
}

// Whoever is not in a group may leave its making out: that is a fault where somebody is stuck in another one for it.
TEST(JudgeMismatch, GroupsMadeInAnotherOrderAreAFaultWhereSomebodyIsStuck) {
  const auto group = [](const char* ranks) { return test_call(Op::kNewGroup, "", {}, ranks, "a.py:5"); };
  auto reports = with_rank_1({group("ranks 0, 1"), group("ranks 0, 2")}, {group("ranks 0, 2"), group("ranks 0, 1")});
  const Diagnosis found = judge_mismatch(census_of(reports)).diagnosis;
  EXPECT_EQ(found.headline, "rank 1 made two groups in the other order");
  reports[0].groups[0].tail.pop_back();  // stuck in the first
  EXPECT_NE(judge_mismatch(census_of(reports)).diagnosis.headline.find("in the other order"), std::string::npos);
  for (auto& report : reports) report.groups[0].tail.back().state = CallState::kDone;
  EXPECT_EQ(judge_mismatch(census_of(reports)).verdict, Verdict::kFine);
}

// A launcher tells all of its ranks to end, one a moment after another.
TEST(JudgeAsked, ARankThatIsToldToEndAloneIsToldOf) {
  auto all = with_rank_1(steps_of(3), steps_of(3));
  all[1].asked_seconds = 0.5;
  EXPECT_EQ(judge_asked(census_of(all)).verdict, Verdict::kFine);
  all[1].asked_seconds = 0.8;
  const Judgement found = judge_asked(census_of(all));
  EXPECT_EQ(found.verdict, Verdict::kNotice);
  EXPECT_EQ(found.diagnosis.headline, "rank 1 was told to end (SIGTERM), and ranks 0, 2 were not");
  all[0].asked_seconds = 0.7;
  EXPECT_EQ(judge_asked(census_of(all)).diagnosis.headline,
            "ranks 0, 1 were told to end (SIGTERM), and rank 2 was not");
  all[2].node = 1;
  EXPECT_EQ(judge_asked(census_of(all)).verdict, Verdict::kFine) << "that machine may be told later";
  all[2].node = 0;
  all[2].life = Life::kFinishing;
  EXPECT_EQ(judge_asked(census_of(all)).verdict, Verdict::kFine) << "it ends by itself";
}

TEST(JudgeNan, TheOneWhoGivesItFirstIsTold) {
  auto all = with_rank_1(steps_of(3), steps_of(3));
  for (auto& rank : all) {
    for (auto& call : rank.groups[0].tail) call.has_nan = call.seq > 3 || (call.seq == 3 && rank.rank == 1) ? 1 : 0;
    rank.groups[0].nan_calls = rank.rank == 1 ? 4 : 3;
  }
  const Judgement found = judge_nan(census_of(all));
  EXPECT_EQ(found.verdict, Verdict::kNotice);
  EXPECT_EQ(found.diagnosis.culprits, RankSet{1});
  EXPECT_EQ(found.diagnosis.seq, 3u);
  for (auto& rank : all) rank.groups[0].tail.erase(rank.groups[0].tail.begin(), rank.groups[0].tail.begin() + 3);
  EXPECT_EQ(judge_nan(census_of(all)).verdict, Verdict::kFine) << "all of them: nobody alone";
}

/// What the agent sees of boards whose ranks have made their groups in another order.
TEST(LocalGroups, AreComparedByWhatTheyAre) {
  LocalRanks local(0);
  std::array<Recorder, 3> recorders;
  for (int rank = 0; rank < 3; ++rank) {
    Recorder& recorder = recorders[static_cast<size_t>(rank)];
    if (rank != 0) recorder.add_group("pair", {1, 2});
    recorder.add_group("default");
    local.adopt({.rank = rank, .world_size = 3}, recorder.memory());
  }
  const auto call = [&](int rank, int group, const TestCall& one) {
    return recorders[static_cast<size_t>(rank)].ring(group).enter(one.signature, one.label, one.site);
  };
  call(0, 0, all_reduce("a.py:1"));
  for (const int rank : {1, 2}) {
    call(rank, 0, all_reduce("a.py:5", 8));
    call(rank, 1, all_reduce("a.py:1"));
  }
  EXPECT_FALSE(local.compare().parted);
  EXPECT_FALSE(local.compare().lines_differ);
  call(1, 0, all_reduce("a.py:5", 8));
  call(2, 0, all_reduce("a.py:6", 8));
  EXPECT_FALSE(local.compare().parted);
  EXPECT_TRUE(local.compare().lines_differ);
  const uint64_t seq = call(1, 0, all_reduce("a.py:5", 8));
  call(2, 0, all_reduce("a.py:5", 9));
  EXPECT_TRUE(local.compare().parted);
  recorders[2].close_group(0);
  EXPECT_FALSE(local.compare().parted) << "nobody knows any more what it does";
  recorders[1].ring(0).set_has_nan(seq);
  EXPECT_TRUE(local.compare().any_nan);
}

TEST(LocalGroups, ACallOfAGroupStartsWhenItsMembersHaveCome) {
  LocalRanks local(0);
  std::array<Recorder, 3> recorders;
  for (int rank = 0; rank < 3; ++rank)
    local.adopt({.rank = rank, .world_size = 3}, recorders[static_cast<size_t>(rank)].memory());
  for (const int rank : {0, 2}) recorders[static_cast<size_t>(rank)].add_group("pair", {0, 2});
  recorders[0].ring(0).enter(all_reduce("").signature, "");
  local.clear_calls();
  EXPECT_EQ(recorders[0].board().groups[0].cleared.load(), 0u);
  recorders[2].ring(0).enter(all_reduce("").signature, "");
  local.clear_calls();
  EXPECT_EQ(recorders[0].board().groups[0].cleared.load(), 1u);
}

TEST(LocalGroups, ACallStartsWhenThoseOfThisNodeHaveComeThatCan) {
  LocalRanks local(0);
  std::array<Recorder, 2> recorders;
  for (int rank = 0; rank < 2; ++rank)
    local.adopt({.rank = rank, .world_size = 4}, recorders[static_cast<size_t>(rank)].memory());
  const auto cleared = [&](int group) {
    local.clear_calls();
    return recorders[0].board().groups[static_cast<size_t>(group)].cleared.load();
  };
  recorders[0].add_group("over nodes", {0, 2});
  recorders[0].ring(0).enter(all_reduce("").signature, "");
  EXPECT_EQ(cleared(0), 1u) << "rank 2 stands on another node";
  recorders[0].add_group("of both", {0, 1});
  recorders[0].ring(1).enter(all_reduce("").signature, "");
  EXPECT_EQ(cleared(1), 0u);
  recorders[1].lack_room(Board::kNoGroups);
  EXPECT_EQ(cleared(1), 1u) << "its board is full: it will never be seen there";
}

TEST(LocalGroups, ARankBeyondTheRoomOfAGroupIsRefused) {
  Recorder recorder;
  EXPECT_THROW(recorder.add_group("far", {0, static_cast<int>(Members::kMost)}), Error);
  const int near = recorder.add_group("near", {0, static_cast<int>(Members::kMost) - 1});
  EXPECT_THROW(recorder.set_members(near, {static_cast<int>(Members::kMost)}), Error);
  recorder.set_members(near, {1, 2});
  EXPECT_EQ(read_board(recorder.board(), 1).groups[0].members, RankSet({1, 2}));
}

}  // namespace
}  // namespace lockstep
