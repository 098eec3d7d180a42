// Ends of ranks: what they said, how their processes ended, what they do not agree on.
#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "lockstep/guard/asked_to_end.h"
#include "lockstep/guard/crash_words.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

constexpr int kWorlds[] = {2, 3, 4, 8};
constexpr int64_t kSecond = 1'000'000'000;

TestCalls first_calls(size_t count) {
  TestCalls calls = training_calls(count / 6 + 1);
  calls.resize(count);
  return calls;
}

/// All ranks wait in call 20, except `late`, which has made 19.
std::vector<RankReport> waiting_for(int late, int world, double seconds) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < world; ++rank) {
    reports.push_back(running_rank(rank, world));
    GroupReport& group = add_calls(reports.back(), first_calls(rank == late ? 19 : 20));
    if (rank == late) {
      group.tail.back().state = CallState::kDone;
    } else {
      wait_in_last(group, seconds);
    }
  }
  return reports;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What every diagnosis of a rank that others wait for in call 20 must say.
void expect_end(const std::vector<RankReport>& reports, Fault fault, int culprit, const std::string& headline,
                const JudgeOptions& options = {}) {
  const Judgement judgement = judge(census_of(reports), options);
  const Diagnosis& found = judgement.diagnosis;
  ASSERT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(fault_name(found.fault), fault_name(fault)) << found.text();
  EXPECT_EQ(found.culprits, RankSet({culprit})) << found.text();
  EXPECT_TRUE(says(found.headline, headline)) << found.text();
  EXPECT_EQ(found.op + " " + found.label, "all_gather layers.1 gather") << found.text();
  EXPECT_TRUE(recorded(reports, found.op, found.label));
  EXPECT_FALSE(found.places.empty());
  EXPECT_FALSE(found.why.empty());
  EXPECT_FALSE(found.fix.empty());
  EXPECT_NE(found.exit_code, 0);
}

TEST(Judge, NamesTheDead) {
  struct Death {
    ProcessEnd end;
    std::string headline;
    int exit_code;
  };
  const std::vector<Death> deaths{
      {{.known = true, .signal = SIGKILL}, "was killed (SIGKILL)", 6},
      {{.known = true, .signal = SIGSEGV}, "crashed (SIGSEGV)", 6},
      {{.known = true, .signal = SIGTERM}, "was asked to end (SIGTERM)", 130},
      {{.known = true, .out_of_memory = true, .signal = SIGKILL}, "the machine's memory is full", 5},
      {{.known = true, .exit_code = 3}, "ended without a word (exit code 3)", 6},
      {{.known = true}, "ended without a word (exit code 0)", 6},
      {{}, "is gone", 6}};
  for (const auto& death : deaths) {
    for (const int world : kWorlds) {
      for (const int culprit : {0, world - 1}) {
        SCOPED_TRACE(death.headline + ", world " + std::to_string(world) + ", culprit " + std::to_string(culprit));
        auto reports = waiting_for(culprit, world, 0.1);
        RankReport& dead = reports[static_cast<size_t>(culprit)];
        dead.process.state = ProcessState::kGone;
        dead.end = death.end;
        dead.gone_seconds = 0.5;
        expect_end(reports, Fault::kDeath, culprit, death.headline);
        EXPECT_EQ(judge(census_of(reports)).diagnosis.exit_code, death.exit_code);
      }
    }
  }
}

TEST(Judge, ARankThatIsAbortedInAllToAllIsToldOfTheSizes) {
  for (const Op op : {Op::kAllToAll, Op::kAllReduce}) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < 3; ++rank) {
      reports.push_back(running_rank(rank, 3));
      wait_in_last(add_calls(reports.back(), {test_call(op, "", {}, "", "route.py:7")}), 0.1);
    }
    reports[1].process.state = ProcessState::kGone;
    reports[1].end = {.known = true, .signal = SIGABRT};
    reports[1].gone_seconds = 0.5;
    const Diagnosis found = judge(census_of(reports)).diagnosis;
    EXPECT_TRUE(says(found.headline, "rank 1 crashed (SIGABRT)")) << found.text();
    EXPECT_EQ(says(found.fix, "output_split_sizes[a] of b at route.py:7"), op == Op::kAllToAll) << found.text();
  }
}

// Its signal is held up: who has caused it is looked for first.
TEST(Judge, AnAbortIsADeathWhereNothingElseIsWrong) {
  for (const bool in_call : {false, true}) {
    auto reports = waiting_for(1, 3, 0.1);
    reports[1].aborting_seconds = 0.4;
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
    reports[1].aborting_seconds = 0.6;
    if (in_call) {  // that others have not come to: it was waited for too long
      wait_in_last(add_calls(reports[1], {test_call(Op::kAllReduce, "f32", {4}, "", "a.py:1")}, "another"), 0.6);
      EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
      continue;
    }
    expect_end(reports, Fault::kDeath, 1, std::string("rank 1 ") + std::string(kAborted));
  }
}

TEST(Judge, WaitsAMomentForTheParentToTellHowAProcessEnded) {
  auto reports = waiting_for(1, 3, 0.1);
  reports[1].process.state = ProcessState::kGone;
  reports[1].gone_seconds = 0.1;
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
}

TEST(Judge, AFinishedProcessIsNoDeath) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 4; ++rank) {
    reports.push_back(running_rank(rank, 4));
    add_calls(reports.back(), first_calls(20));
    reports.back().life = Life::kFinished;
    if (rank < 2) reports.back().process.state = ProcessState::kGone;
    if (rank < 2) reports.back().end = {.known = true};
    reports.back().gone_seconds = 5;
  }
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
}

TEST(Judge, WhatAProcessDoesThatHasLeftItsGroupsIsItsOwn) {
  for (const bool left : {true, false}) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < 3; ++rank) {
      reports.push_back(running_rank(rank, 3));
      add_calls(reports.back(), first_calls(20));
    }
    reports[1].process.state = ProcessState::kGone;
    reports[1].end = {.known = true, .signal = SIGKILL};
    for (auto& group : reports[1].groups) group.left = left;
    EXPECT_EQ(judge(census_of(reports)).verdict, left ? Verdict::kFine : Verdict::kEnd);
  }
}

TEST(Judge, WhoWaitsByATimeOutOfItsOwnIsWaitedFor) {
  const JudgeOptions options;
  const double usual = std::ranges::max(options.hard_seconds);
  auto reports = waiting_for(1, 3, 2 * usual);
  reports[1].phase_seconds = 2 * usual;
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kEnd);
  for (auto& report : reports) {
    for (auto& group : report.groups) group.patience_seconds = 3 * usual;
  }
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kNotice);
}

TEST(Judge, TheFirstErrorIsTheHeadline) {
  for (const int world : kWorlds) {
    auto reports = waiting_for(1, world, 0.1);
    reports[1].last_words = {.exit_code = 3,
                             .at_ns = 100 * kSecond,
                             .message = "row 17: no such image",
                             .hint = "mend it",
                             .place = "waiting for data"};
    reports[0].last_words = {
        .exit_code = 6, .at_ns = 100 * kSecond - 5, .secondary = true, .message = "closed by peer"};
    const Diagnosis found = judge(census_of(reports)).diagnosis;
    EXPECT_EQ(found.fault, Fault::kError);
    EXPECT_EQ(found.culprits, RankSet({1}));
    EXPECT_EQ(found.headline, "rank 1: row 17: no such image");
    EXPECT_EQ(found.error_hint, "mend it");
    EXPECT_EQ(found.exit_code, 3);
    // Another error before it, by the clocks of two machines.
    reports[0].last_words->secondary = false;
    reports[0].last_words->message = "disk full";
    EXPECT_EQ(judge(census_of(reports)).diagnosis.headline, "rank 0: disk full");
    reports[0].realtime_offset_ns = kSecond;
    EXPECT_EQ(judge(census_of(reports)).diagnosis.headline, "rank 1: row 17: no such image");
  }
}

TEST(Judge, ABrokenTransportIsTheCauseOnlyWhenNothingElseShows) {
  auto reports = waiting_for(1, 3, 0.1);
  reports[0].last_words = {
      .exit_code = 6, .at_ns = 1000 * kSecond - kSecond / 2, .secondary = true, .message = "timed out"};
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  reports[0].last_words->at_ns -= kSecond;
  const Judgement late = judge(census_of(reports));
  EXPECT_EQ(late.verdict, Verdict::kEnd);
  EXPECT_EQ(late.diagnosis.fault, Fault::kTransport);
  EXPECT_EQ(late.diagnosis.headline, "rank 0: timed out");
}

// An exception whose clean-up makes a call of its own: the error is the cause, not the call.
TEST(Judge, AnErrorBeforeADivergentCleanUpIsTheCause) {
  for (const int world : kWorlds) {
    for (const int64_t at_ms : {18, 25}) {
      std::vector<RankReport> reports;
      for (int rank = 0; rank < world; ++rank) {
        TestCalls calls = first_calls(20);
        if (rank == 1) calls.back() = test_call(Op::kBarrier, "", {}, "clean-up", "train.cpp:9");
        reports.push_back(running_rank(rank, world));
        wait_in_last(add_calls(reports.back(), calls), 0.2);
      }
      reports[1].last_words = {.exit_code = 7, .at_ns = at_ms * 1'000'000, .message = "loss is nan"};
      const Diagnosis found = judge(census_of(reports)).diagnosis;
      if (at_ms == 18) {
        EXPECT_EQ(found.fault, Fault::kError);
        EXPECT_EQ(found.headline, "rank 1: loss is nan");
        EXPECT_EQ(found.exit_code, 7);
      } else {
        EXPECT_EQ(found.fault, Fault::kMismatch);
      }
    }
  }
}

TEST(Judge, AnErrorOfAllRanksNamesNone) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 4; ++rank) {
    reports.push_back(running_rank(rank, 4));
    reports.back().last_words = {.exit_code = 3, .at_ns = 5, .message = "the dataset is empty"};
  }
  EXPECT_EQ(judge(census_of(reports)).diagnosis.headline, "the dataset is empty");
  reports[2].last_words.reset();
  EXPECT_EQ(judge(census_of(reports)).diagnosis.headline, "ranks 0, 1, 3: the dataset is empty");
  for (auto& report : reports) {
    if (report.last_words) report.last_words->shared = true;
  }
  EXPECT_EQ(judge(census_of(reports)).diagnosis.headline, "the dataset is empty");
}

TEST(Judge, FactsThatDifferComeWithTheFlagThatMadeThem) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(running_rank(rank, 3));
    reports.back().facts =
        rank == 1 ? R"({"plan":"x","settings":{"--model":"/a","--output_dir":"/1","--torch_dtype":"bfloat16"}})"
                  : R"({"plan":"y","settings":{"--model":"/a","--output_dir":"/0","--torch_dtype":"float32"}})";
  }
  EXPECT_TRUE(says(judge(census_of(reports)).diagnosis.fix, "start rank 1 with --torch_dtype float32, as ranks 0, 2"));
  add_calls(reports[1], {test_call(Op::kAllReduce, "f32", {4}, "loss")});  // what follows from it is not the cause
  add_calls(reports[0], {test_call(Op::kAllReduce, "f32", {6}, "loss")});
  EXPECT_EQ(judge(census_of(reports)).diagnosis.fault, Fault::kFacts);
}

TEST(Judge, FactsMustAgree) {
  for (const int world : kWorlds) {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) {
      reports.push_back(running_rank(rank, world));
      reports.back().facts = rank == 1 ? R"({"model":"ab12","plan":"x"})" : R"({"model":"cd34","plan":"x"})";
    }
    const Judgement judgement = judge(census_of(reports));
    ASSERT_EQ(judgement.verdict, Verdict::kEnd);
    EXPECT_EQ(judgement.diagnosis.fault, Fault::kFacts);
    EXPECT_EQ(judgement.diagnosis.culprits, RankSet({1}));
    EXPECT_EQ(judgement.diagnosis.between_two, world == 2);
    EXPECT_TRUE(says(judgement.diagnosis.headline, "do not agree on the model: rank 1 has ab12"));
    EXPECT_TRUE(says(judgement.diagnosis.fix, "--model"));
    EXPECT_EQ(judgement.diagnosis.exit_code, 2);
    for (const char* garbage : {"", "{", "[1]", "\"text\"", R"({"model":7})"}) {
      reports[1].facts = garbage;
      EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine) << garbage;
    }
    // A process may run one job after another, and its ranks do not begin the next at the same moment.
    reports[1].facts = R"({"model":"ef56","plan":"y","run":"2"})";
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  }
}

TEST(Judge, NamesTheStopped) {
  for (const int world : kWorlds) {
    auto reports = waiting_for(world - 1, world, 2);
    RankReport& stopped = reports.back();
    stopped.process.state = ProcessState::kStopped;
    stopped.stopped_seconds = 2;
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
    stopped.stopped_seconds = 3.5;
    expect_end(reports, Fault::kStopped, world - 1, "has been stopped (SIGSTOP) for 3.5s");
    EXPECT_TRUE(says(judge(census_of(reports)).diagnosis.fix, "kill -CONT " + std::to_string(stopped.pid)));
    for (auto& report : reports) report.process.state = ProcessState::kStopped;
    EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine) << "Ctrl-Z: all of them are, and may go on";
    for (auto& report : reports) report.process.state = ProcessState::kAlive;
    stopped.process.state = ProcessState::kTraced;  // a debugger's user knows
    EXPECT_NE(judge(census_of(reports)).verdict, Verdict::kEnd);
  }
}

TEST(Judge, NamesTheLostNodeWithAllItsRanks) {
  auto reports = waiting_for(5, 8, 1);
  for (const size_t rank : {4, 5, 6, 7}) {
    reports[rank].node = 1;
    reports[rank].host = "far";
    reports[rank].unreachable = true;
  }
  const Judgement judgement = judge(census_of(reports));
  ASSERT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(judgement.diagnosis.fault, Fault::kLostNode);
  EXPECT_EQ(judgement.diagnosis.culprits, RankSet({4, 5, 6, 7}));
  EXPECT_EQ(judgement.diagnosis.headline, "node 1 (far) does not answer any more: ranks 4-7");
}

// With the agent of node 1 all nodes below it in the tree fall silent; the uppermost is the one to look at.
TEST(Judge, OfASilentSubtreeTheUppermostNodeIsNamed) {
  std::vector<RankReport> reports = waiting_for(-1, 12, 1);
  for (size_t rank = 2; rank < 12; ++rank) {
    reports[rank].node = static_cast<int>(rank / 2);
    reports[rank].host = "host" + std::to_string(rank / 2);
    reports[rank].unreachable = rank < 4 || rank >= 8;
    reports[rank].step = rank >= 8 ? 2 : 3;
  }
  std::swap(reports[3], reports[11]);  // in whatever order they were heard
  std::swap(reports[2], reports[10]);
  Census census;
  for (auto at = reports.rbegin(); at != reports.rend(); ++at) census.add(*at);
  const Diagnosis found = judge(census).diagnosis;
  EXPECT_EQ(found.fault, Fault::kLostNode);
  EXPECT_TRUE(says(found.headline, "node 1 (host1)")) << found.headline;
}

// Two of three have come and do not agree: the third tells which of them is odd, if it comes soon.
TEST(Judge, TwoSidesOfAFactWaitForTheRankThatJoins) {
  auto reports = std::vector<RankReport>{running_rank(0, 3), running_rank(1, 3), running_rank(2, 3)};
  reports[0].facts = R"({"world size": "3"})";
  reports[2].facts = R"({"world size": "4"})";
  reports[1].joined = false;
  reports[1].life = Life::kStarting;
  for (auto& report : reports) report.phase_seconds = 0.5;
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
  for (auto& report : reports) report.phase_seconds = 2.5;
  EXPECT_EQ(judge(census_of(reports)).diagnosis.fault, Fault::kFacts);
  for (auto& report : reports) report.phase_seconds = 0.5;
  reports[1].joined = true;
  reports[1].facts = reports[0].facts;
  EXPECT_EQ(judge(census_of(reports)).diagnosis.culprits, RankSet({2}));
}

// torchrun tells all of them, and they do not leave at one moment.
TEST(Judge, AnEndThatALauncherAsksForIsNoFault) {
  auto reports = std::vector<RankReport>{running_rank(0, 3), running_rank(1, 3), running_rank(2, 3)};
  for (const size_t rank : {0, 2}) wait_in_last(add_calls(reports[rank], training_calls(1)), 1.2);
  reports[1].life = Life::kFinished;
  EXPECT_EQ(judge(census_of(reports)).diagnosis.fault, Fault::kEarlyEnd);
  reports[1].exit_code = kAskedToEnd;
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
}

TEST(Judge, AnEarlyEndIsNamedOnceItHasStood) {
  for (const int world : kWorlds) {
    for (const Life life : {Life::kFinishing, Life::kFinished}) {
      auto reports = waiting_for(1, world, 0.1);
      reports[1].life = life;
      reports[1].phase = Phase::kEnd;
      EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
      for (auto& report : reports) {
        for (auto& group : report.groups) group.waiting_seconds = 0.5;
      }
      expect_end(reports, Fault::kEarlyEnd, 1, "rank 1 finished (exit code 0) while");
      EXPECT_TRUE(says(judge(census_of(reports)).diagnosis.fix, "same step"));
    }
  }
}

TEST(Judge, APartOfTheJobProvesNoAbsence) {
  auto reports = waiting_for(1, 4, 700);
  reports[1].life = Life::kFinished;
  EXPECT_EQ(judge(census_of(reports), {.whole = false}).verdict, Verdict::kFine);
}

TEST(Judge, TheLineOfACallThatIsOverIsNotSaidToBeWhereARankStands) {
  RankReport report = running_rank(0, 2);
  add_calls(report, training_calls(1));
  FlightRecord& last = report.groups[0].tail.back();
  last.state = CallState::kDone;
  report.detail = last.site.view();
  EXPECT_TRUE(says(report.place(), "(its last call at " + report.detail + ")")) << report.place();
  wait_in_last(report.groups[0], 1);
  EXPECT_FALSE(says(report.place(), "its last call")) << report.place();
}

TEST(Judge, NothingIsAnAnswer) { EXPECT_EQ(judge({}).verdict, Verdict::kFine); }

}  // namespace
}  // namespace lockstep
