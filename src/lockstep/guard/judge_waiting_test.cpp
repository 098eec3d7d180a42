// Who waits for whom: circles, stalls, transports that do not move, ranks that never came.
#include <gtest/gtest.h>

#include "lockstep/guard/meeting_words.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A rank that has made `first` calls in group "data" and `second` in "control", and waits in the last one of `waits`.
RankReport two_groups(int rank, int world, size_t first, size_t second, const std::string& waits, double seconds) {
  RankReport report = running_rank(rank, world);
  for (const auto& [name, count] : {std::pair{"data", first}, std::pair{"control", second}}) {
    TestCalls calls(count,
                    test_call(Op::kAllReduce, "f32", {4}, std::string(name) + " sum", std::string(name) + ".cpp:1"));
    GroupReport& group = add_calls(report, calls, name);
    if (waits == name) wait_in_last(group, seconds);
  }
  return report;
}

TEST(Deadlock, TwoSidesInTwoGroups) {
  for (const int world : {2, 3, 4, 8}) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) {
      reports.push_back(rank == 1 ? two_groups(rank, world, 10, 6, "control", 1.5)
                                  : two_groups(rank, world, 11, 5, "data", 1.2));
    }
    const Judgement judgement = judge(census_of(reports));
    const Diagnosis& found = judgement.diagnosis;
    ASSERT_EQ(judgement.verdict, Verdict::kEnd);
    EXPECT_EQ(found.fault, Fault::kDeadlock) << found.text();
    EXPECT_EQ(found.culprits, RankSet({1}));
    EXPECT_EQ(found.between_two, world == 2);
    EXPECT_EQ(found.op, "all_reduce");
    EXPECT_EQ(found.label, "control sum");
    ASSERT_EQ(found.sides.size(), 2U);
    EXPECT_TRUE(says(found.sides[0].call, "#11 of group \"data\"")) << found.text();
    EXPECT_TRUE(says(found.sides[1].call, "#6 of group \"control\""));
    EXPECT_TRUE(says(found.text(), "data.cpp:1"));
    EXPECT_TRUE(says(found.text(), "control.cpp:1"));
    for (auto& report : reports) {
      for (auto& group : report.groups) group.waiting_seconds = std::min(group.waiting_seconds, 0.9);
    }
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  }
}

// The first to come has waited long for the last, who has just come: no transport is slow yet.
TEST(Late, ATransportIsTimedFromTheLastToCome) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(running_rank(rank, 3));
    wait_in_last(add_calls(reports.back(), training_calls(1)), 9);
  }
  ASSERT_EQ(census_of(reports).classes.size(), 1U);
  EXPECT_EQ(judge(census_of(reports)).diagnosis.fault, Fault::kTransport);
  wait_in_last(reports[1].groups[0], 0.1);
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine) << judge(census_of(reports)).diagnosis.text();
}

// Calls that were begun and are awaited later: a rank that does something else meanwhile comes to the other's call.
TEST(Deadlock, IsNoneWhileOneSideDoesSomethingElse) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(rank == 1 ? two_groups(rank, 3, 10, 6, "control", 2) : two_groups(rank, 3, 11, 5, "data", 2));
  }
  ASSERT_EQ(judge(census_of(reports)).diagnosis.fault, Fault::kDeadlock);
  reports[1].groups[1].stands = false;
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  const Judgement late = judge(census_of(reports), {.soft_seconds = 1});
  EXPECT_EQ(late.verdict, Verdict::kNotice);
  EXPECT_EQ(late.diagnosis.fault, Fault::kStall);
  EXPECT_EQ(late.diagnosis.culprits, RankSet({1})) << late.diagnosis.text();
}

TEST(EarlyEnd, IsSeenBehindAnotherOpenCall) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(rank == 1 ? two_groups(rank, 3, 5, 5, "", 0) : two_groups(rank, 3, 5, 6, "control", 0.5));
  }
  for (const int rank : {0, 2}) wait_in_last(reports[static_cast<size_t>(rank)].groups[0], 0.5);  // to which all came
  ASSERT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  auto ended = reports;
  ended[1].life = Life::kFinished;
  ended[1].exit_code = -1;
  ended[1].phase_seconds = 0.5;
  EXPECT_EQ(judge(census_of(ended)).verdict, Verdict::kFine) << "its code is to come";
  ended[1].phase_seconds = 1.5;
  EXPECT_EQ(judge(census_of(ended)).diagnosis.headline, "rank 1 finished while ranks 0, 2 still are in a call");
  ended[1].exit_code = 3;
  EXPECT_EQ(judge(census_of(ended)).diagnosis.headline,
            "rank 1 finished (exit code 3) while ranks 0, 2 still are in a call");
  EXPECT_EQ(judge(census_of(ended)).diagnosis.fix, "mend what rank 1 says in its last lines");
  reports[1].groups[1].left = true;
  EXPECT_EQ(judge(census_of(reports)).diagnosis.headline,
            "rank 1 has left group \"control\" (destroy_process_group) while ranks 0, 2 still are in a call");
  EXPECT_EQ(judge(census_of(reports)).diagnosis.culprits, RankSet({1}));
}

// `if rank == 0: barrier()` at the end of a program, or a row more on one rank.
TEST(EarlyEnd, WhoIsLeftInACallThatAllOthersDidWithoutIsTheOddOne) {
  for (const int world : {2, 3, 4}) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) {
      reports.push_back(running_rank(rank, world));
      TestCalls calls = training_calls(1);
      if (rank == 0) calls.push_back(test_call(Op::kBarrier, "", {}, "", "end.py:7"));
      add_calls(reports.back(), calls);
      if (rank > 0) reports.back().life = Life::kFinished;
    }
    wait_in_last(reports[0].groups[0], 1.2);
    const Diagnosis found = judge(census_of(reports)).diagnosis;
    EXPECT_EQ(found.fault, Fault::kEarlyEnd);
    if (world == 2) continue;  // nobody is the odd one of two
    reports[2].exit_code = -1;
    reports[2].phase_seconds = 0.3;
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine) << "with which code is to come";
    reports[2].exit_code = 0;
    EXPECT_EQ(found.culprits, RankSet({0})) << found.text();
    EXPECT_NE(found.fix.find("a branch on the rank around end.py:7"), std::string::npos) << found.fix;
    reports[1].life = Life::kRunning;  // it may still come
    EXPECT_NE(judge(census_of(reports)).diagnosis.culprits, RankSet({0}));
  }
}

// Rank 0 waits in a for rank 1, rank 1 in b for rank 2, rank 2 in c for rank 0.
TEST(Deadlock, ThreeSidesInACircle) {
  std::vector<RankReport> reports;
  const TestCalls one{test_call(Op::kBarrier, "", {}, "meet", "x.cpp:1")};
  for (int rank = 0; rank < 3; ++rank) {
    RankReport report = running_rank(rank, 3);
    const std::array<const char*, 3> names{"a", "b", "c"};
    for (int group = 0; group < 3; ++group) {
      const bool entered = (group + 1) % 3 != rank;
      GroupReport& made = add_calls(report, entered ? one : TestCalls{}, names.at(static_cast<size_t>(group)));
      if (group == rank) wait_in_last(made, 2);
    }
    reports.push_back(std::move(report));
  }
  const Diagnosis found = judge(census_of(reports)).diagnosis;
  EXPECT_EQ(found.fault, Fault::kDeadlock) << found.text();
  EXPECT_EQ(found.sides.size(), 3U);
  EXPECT_TRUE(found.between_two);
}

/// Rank 0 waits for rank 1 in a call that concerns the two, rank 1 with the others in one of all.
std::vector<RankReport> unanswered(const TestCall& asked, const std::string& group, int world) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < world; ++rank) {
    reports.push_back(running_rank(rank, world));
    RankReport& report = reports.back();
    TestCalls all(3, test_call(Op::kAllReduce, "f32", {4}, "", "a.py:1"));
    if (rank > 0) all.push_back(test_call(Op::kBarrier, "", {}, "", "a.py:9"));
    GroupReport& common = add_calls(report, all, "default");
    if (rank > 0) wait_in_last(common, 1.5);
    if (rank > 0) continue;
    GroupReport& own = add_calls(report, {asked}, group);
    own.members = RankSet{0, 1};
    wait_in_last(own, 1.2);
  }
  return reports;
}

TEST(Deadlock, WhoDoesNotReceiveOrSendIsNamed) {
  for (const int world : {2, 3, 4}) {
    for (const auto& [op, said] : {std::pair{Op::kSend, "rank 1 does not receive what rank 0 sends to it"},
                                   std::pair{Op::kRecv, "rank 1 does not send what rank 0 waits to receive from it"}}) {
      const TestCall asked = test_call(op, "f32", {4}, "", "a.py:5", ReduceOp::kNone, 1);
      const Diagnosis found = judge(census_of(unanswered(asked, "default between 0 and 1", world))).diagnosis;
      EXPECT_EQ(found.headline, std::string(said) + ", and waits in #4 of group \"default\": barrier");
      EXPECT_EQ(found.culprits, RankSet{1});
      EXPECT_FALSE(found.between_two);
      EXPECT_TRUE(says(found.fix, "around a.py:5 and a.py:9")) << found.fix;
    }
  }
}

TEST(Deadlock, WhoDoesNotMakeAGroupIsNamed) {
  const Diagnosis found =
      judge(census_of(unanswered(test_call(Op::kNewGroup, "", {}, "ranks 0, 1", "a.py:5"), "new_group", 3))).diagnosis;
  EXPECT_EQ(
      found.headline,
      "rank 1 does not come to new_group \"ranks 0, 1\", as rank 0 did, and waits in #4 of group \"default\": barrier");
  EXPECT_EQ(found.culprits, RankSet{1}) << "rank 2 is not in it";
  EXPECT_EQ(found.op, "new_group");
}

// Its members alone need it, and it may take a while.
TEST(Stall, AGroupThatAllHaveComeToIsBeingMade) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    reports.push_back(running_rank(rank, 3));
    GroupReport& made =
        add_calls(reports.back(), {test_call(Op::kNewGroup, "", {}, "ranks 0, 1", "a.py:5")}, "new_group");
    made.members = RankSet{0, 1};
    wait_in_last(made, 20);
  }
  reports.push_back(running_rank(2, 3));
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  reports[1].groups.clear();
  EXPECT_EQ(judge(census_of(reports)).diagnosis.culprits, RankSet{1});
}

// Everybody waits for the one who is busy: no circle.
TEST(Deadlock, AWaitForABusyRankIsNone) {
  std::vector<RankReport> reports{two_groups(0, 3, 11, 5, "data", 2), two_groups(1, 3, 11, 5, "data", 2),
                                  two_groups(2, 3, 10, 5, "", 0)};
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
}

std::vector<RankReport> stalled(int world, Phase phase, double seconds) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < world; ++rank) {
    reports.push_back(rank == world - 1 ? two_groups(rank, world, 10, 5, "", 0)
                                        : two_groups(rank, world, 11, 5, "data", seconds));
  }
  RankReport& late = reports.back();
  late.phase = phase;
  late.detail = "rows.jsonl:17";
  late.phase_seconds = seconds + 0.5;
  late.stack = "#0 read";
  return reports;
}

// Its call is queued on its device, behind work that does not end.
TEST(Stall, NamesWhoHasLaunchedTheCallButDoesNotStandInIt) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) reports.push_back(two_groups(rank, 3, 11, 5, rank == 1 ? "" : "data", 3.5));
  reports[1].phase = Phase::kBackward;
  reports[1].phase_seconds = 4;
  const Judgement notice = judge(census_of(reports), {.soft_seconds = 3});
  EXPECT_EQ(notice.verdict, Verdict::kNotice);
  EXPECT_EQ(notice.diagnosis.fault, Fault::kStall) << notice.diagnosis.text();
  EXPECT_EQ(notice.diagnosis.culprits, RankSet({1}));
  reports[1] = two_groups(1, 3, 11, 5, "data", 3.4);
  EXPECT_EQ(judge(census_of(reports), {.soft_seconds = 3}).diagnosis.fault, Fault::kTransport) << "all stand in it";
}

TEST(Stall, IsNoticedAndEndsAtTheHardPatienceOfItsPhase) {
  JudgeOptions options{.soft_seconds = 3};
  options.hard_seconds[static_cast<size_t>(Phase::kData)] = 40;
  options.hard_seconds[static_cast<size_t>(Phase::kSave)] = 80;
  for (const int world : {2, 3, 4, 8}) {
    for (const auto& [phase, hard] : {std::pair{Phase::kData, 40.0}, std::pair{Phase::kSave, 80.0}}) {
      const auto judged = [&, phase = phase](double seconds) {
        return judge(census_of(stalled(world, phase, seconds)), options);
      };
      EXPECT_EQ(judged(2.9).verdict, Verdict::kFine);
      const Judgement notice = judged(3.1);
      EXPECT_EQ(notice.verdict, Verdict::kNotice);
      EXPECT_EQ(notice.diagnosis.fault, Fault::kStall);
      EXPECT_EQ(notice.diagnosis.culprits, RankSet({world - 1}));
      EXPECT_DOUBLE_EQ(notice.waited_seconds, 3.1);
      EXPECT_EQ(notice.diagnosis.op + " " + notice.diagnosis.label, "all_reduce data sum");
      EXPECT_EQ(notice.diagnosis.stack, "#0 read");
      EXPECT_TRUE(says(notice.diagnosis.headline, std::string(phase_text(phase)) + " (rows.jsonl:17)"));
      EXPECT_TRUE(says(notice.diagnosis.fix, "--patience " + std::string(phase_name(phase)) + "="));
      EXPECT_EQ(judged(hard - 0.1).verdict, Verdict::kNotice);
      EXPECT_EQ(judged(hard).verdict, Verdict::kEnd);
    }
  }
}

// Ranks that hold the whole model do not meet while they work: one with more rows than the others is not stalled.
TEST(Stall, ARankThatGoesFromBlockToBlockIsAtWorkHoweverLongTheOthersWait) {
  auto reports = stalled(3, Phase::kForward, 5000);
  reports[2].phase_seconds = 0.4;
  const Judgement judgement = judge(census_of(reports));
  EXPECT_EQ(judgement.verdict, Verdict::kNotice) << judgement.diagnosis.text();
  reports[2].phase_seconds = 700;  // in the same block for longer than its patience
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kEnd);
}

TEST(Stall, BlockedInTheKernelIsSaidSo) {
  auto reports = stalled(3, Phase::kData, 5);
  reports[2].process.in_kernel = true;
  reports[2].process.waits_in = "nfs_wait";
  const Diagnosis found = judge(census_of(reports)).diagnosis;
  EXPECT_TRUE(says(found.headline, "rank 2 is blocked in the kernel")) << found.headline;
  EXPECT_TRUE(says(found.why, "nfs_wait"));
}

// A waits in one group for B, which waits in another for C: C is named.
TEST(Stall, TheEndOfAChainIsNamed) {
  std::vector<RankReport> reports{two_groups(0, 3, 11, 6, "data", 9), two_groups(1, 3, 10, 6, "control", 8),
                                  two_groups(2, 3, 11, 5, "", 0)};
  const Judgement judgement = judge(census_of(reports));
  EXPECT_EQ(judgement.verdict, Verdict::kNotice);
  EXPECT_EQ(judgement.diagnosis.culprits, RankSet({2})) << judgement.diagnosis.text();
}

TEST(Stall, ARankWithoutABoardIsOneThatHasNotCome) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) reports.push_back(two_groups(rank, 4, 1, 0, "data", 5));
  reports.push_back({.rank = 3, .world_size = 4});
  const Judgement judgement = judge(census_of(reports));
  EXPECT_EQ(judgement.verdict, Verdict::kNotice);
  EXPECT_EQ(judgement.diagnosis.fault, Fault::kStall) << judgement.diagnosis.text();
  EXPECT_EQ(judgement.diagnosis.culprits, RankSet({3}));
  EXPECT_TRUE(says(judgement.diagnosis.headline, "has not joined the roll call"));
}

TEST(Transport, IsNamedWhenAllHaveCome) {
  for (const int world : {2, 3, 4, 8}) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) reports.push_back(two_groups(rank, world, 11, 5, "data", 20));
    const Judgement notice = judge(census_of(reports));
    EXPECT_EQ(notice.verdict, Verdict::kNotice);
    EXPECT_EQ(notice.diagnosis.fault, Fault::kTransport);
    EXPECT_TRUE(says(notice.diagnosis.headline, "all ranks came to #11 of group \"data\""))
        << notice.diagnosis.headline;
    EXPECT_EQ(notice.diagnosis.label, "data sum");
    for (auto& report : reports) wait_in_last(report.groups[0], 601);
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kEnd);
  }
}

std::vector<RankReport> meeting(int world, int absent, double seconds) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < world; ++rank) {
    if (rank == absent) continue;
    RankReport report = running_rank(rank, world);
    report.life = Life::kStarting;
    report.phase = Phase::kStart;
    report.detail = "meeting the other ranks at 10.0.0.1:29500";
    report.phase_seconds = seconds;
    reports.push_back(std::move(report));
  }
  return reports;
}

TEST(Absent, IsNamedAfterTheStart) {
  for (const int world : {2, 3, 4, 8}) {
    EXPECT_EQ(judge(census_of(meeting(world, 1, 6))).verdict, Verdict::kFine);
    EXPECT_EQ(judge(census_of(meeting(world, -1, 500))).verdict, Verdict::kFine);
    const Judgement notice = judge(census_of(meeting(world, 1, 11)));
    EXPECT_EQ(notice.verdict, Verdict::kNotice);
    EXPECT_EQ(notice.diagnosis.fault, Fault::kAbsent);
    EXPECT_EQ(notice.diagnosis.culprits, RankSet({1}));
    EXPECT_TRUE(says(notice.diagnosis.headline, "rank 1 of " + std::to_string(world) + " did not come"));
    EXPECT_TRUE(says(notice.diagnosis.why, "WORLD_SIZE"));
    EXPECT_EQ(judge(census_of(meeting(world, 1, 600))).verdict, Verdict::kEnd);
    auto known = meeting(world, 1, 11);  // started, but it has not shown a board
    known.push_back({.rank = 1, .world_size = world, .pid = 77, .host = "here"});
    EXPECT_EQ(judge(census_of(known)).diagnosis.culprits, RankSet({1}));
  }
}

TEST(Absent, RanksThatHaveComeToTheMeetingAreNotMissed) {
  auto half = meeting(4, -1, 11);  // one of two nodes, whose agents do not know of each other yet
  half.erase(half.begin(), half.begin() + 2);
  for (auto& report : half) report.detail = "meeting at 10.0.0.1:29500, rank 2 of 4 waits for rank 1";
  EXPECT_EQ(judge(census_of(half)).diagnosis.culprits, RankSet({1}));
  for (auto& report : half) report.detail = "meeting at 10.0.0.1:29500";
  EXPECT_EQ(judge(census_of(half)).diagnosis.culprits, RankSet({0, 1}));
}

TEST(Absent, WhoFindsNobodyAtTheMeetingPointIsToldToLookFromThere) {
  auto half = meeting(4, -1, 11);
  half.erase(half.begin(), half.begin() + 2);
  for (auto& report : half) {
    report.detail = "meeting at nowhere:29500";
    report.facts = R"({"world size": "4", "settings": {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}})";
  }
  const Judgement astray = judge(census_of(half));
  EXPECT_TRUE(says(astray.diagnosis.why, "ranks 2, 3 found nobody there")) << astray.diagnosis.why;
  EXPECT_TRUE(says(astray.diagnosis.fix, "look from this host whether MASTER_ADDR")) << astray.diagnosis.fix;
  for (auto& report : half) report.detail = "meeting at 10.0.0.1:29500, rank 2 of 4 waits for rank 0";
  EXPECT_TRUE(says(judge(census_of(half)).diagnosis.fix, "start ranks 0, 1 too"));
}

TEST(Absent, RanksThatHaveMetAndDoNotReachEachOtherAreToldOfFirewalls) {
  auto met = meeting(4, -1, 11);
  for (auto& report : met) report.detail = std::string(kConnecting);
  EXPECT_EQ(judge(census_of(met)).verdict, Verdict::kFine) << "on one host";
  for (const std::string_view doing : {kConnecting, std::string_view("init_process_group at 127.0.0.1:29500")}) {
    auto stuck = meeting(4, -1, 601);
    for (auto& report : stuck) report.detail = doing;
    const Judgement end = judge(census_of(stuck));
    EXPECT_EQ(end.verdict, Verdict::kEnd) << doing;
    EXPECT_TRUE(says(end.diagnosis.fix, "start the job again")) << end.diagnosis.fix;
    stuck[1].phase = Phase::kRun;
    stuck[1].life = Life::kRunning;
    EXPECT_FALSE(says(judge(census_of(stuck)).diagnosis.headline, "not connected")) << "one has come further";
  }
  for (auto& report : met)
    report.facts = R"({"world size": "4", "settings": {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}})";
  const Judgement notice = judge(census_of(met));
  EXPECT_EQ(notice.verdict, Verdict::kNotice);
  EXPECT_TRUE(says(notice.diagnosis.headline, "not connected to the other ranks")) << notice.diagnosis.headline;
  EXPECT_TRUE(says(notice.diagnosis.fix, "firewalls"));
  for (auto& report : met) report.phase_seconds = 601;
  EXPECT_EQ(judge(census_of(met)).verdict, Verdict::kEnd);
}

}  // namespace
}  // namespace lockstep
