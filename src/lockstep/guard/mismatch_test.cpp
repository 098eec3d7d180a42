#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

/// A fault at one call of one rank's program, and what must be said of it.
struct MismatchCase {
  std::string name;
  std::function<void(TestCalls&, size_t at)> inject;
  size_t call = 0;  // of the step
  std::string headline_stuck, headline_going_on, op, label, fix;
};

std::vector<MismatchCase> all_cases() {
  const auto change = [](auto apply) { return [apply](TestCalls& calls, size_t at) { apply(calls[at].signature); }; };
  const auto shape = [](const std::vector<int64_t>& dims) {
    return [dims](TestCalls& calls, size_t at) {
      const TestCall old = calls[at];
      calls[at].signature = CallSignature::of(old.signature.op, old.signature.dtype_text(), dims);
      calls[at].signature.reduce = old.signature.reduce;
      calls[at].signature.root = old.signature.root;
    };
  };
  const std::string branch = "same calls in the same order";
  return {
      {"op", change([](auto& call) {
         call.op = Op::kAllGather;
         call.reduce = ReduceOp::kNone;
       }),
       4, "made another call: all_gather beside all_reduce", "made another call: all_gather beside all_reduce",
       "all_gather", "norm", branch},
      {"dtype", change([](auto& call) {
         call.dtype = {'i', '3', '2'};
       }),
       4, "sent another dtype: i32 beside f32", "sent another dtype: i32 beside f32", "all_reduce", "norm",
       "clip.cpp:30"},
      {"shape", shape({2, 4}), 4, "sent another shape: all_reduce sum f32[2, 4] beside all_reduce sum f32[2, 3]",
       "sent another shape: all_reduce sum f32[2, 4] beside all_reduce sum f32[2, 3]", "all_reduce", "norm", "pad"},
      {"same size", shape({3, 2}), 4, "sent another shape of the same size", "sent another shape of the same size",
       "all_reduce", "norm", "pad"},
      {"reduce op", change([](auto& call) { call.reduce = ReduceOp::kMax; }), 4,
       "reduces by max where others take the sum", "reduces by max where others take the sum", "all_reduce", "norm",
       "same reduce operation"},
      {"root", change([](auto& call) { call.root = 1; }), 5, "names root 1 where others name 0",
       "names root 1 where others name 0", "broadcast", "batch size", "a constant"},
      {"splits", change([](auto& call) {
         call.has_splits = 1;
         call.splits = 77;
       }),
       0, "sent another shape", "sent another shape", "all_gather", "layers.0 gather", "pad"},
      {"label", [](TestCalls& calls, size_t at) { calls[at].label = "other"; }, 4,
       "sent another tensor: \"other\" beside \"norm\"", "sent another tensor: \"other\" beside \"norm\"", "all_reduce",
       "other", "in one order"},
      {"skip", [](TestCalls& calls, size_t at) { calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(at)); }, 4,
       "skipped a call that", "skipped a call that", "all_reduce", "norm", branch},
      {"skip two",
       [](TestCalls& calls, size_t at) {
         const auto from = calls.begin() + static_cast<std::ptrdiff_t>(at);
         calls.erase(from, from + 2);
       },
       1, "skipped 2 calls that", "skipped 2 calls that", "all_gather", "layers.1 gather", branch},
      {"extra, known",
       [](TestCalls& calls, size_t at) {
         calls.insert(calls.begin() + static_cast<std::ptrdiff_t>(at), calls[at - 1]);
       },
       4, "made a call that", "made a call that", "reduce_scatter", "layers.0 gradient", branch},
      {"extra, unknown",
       [](TestCalls& calls, size_t at) {
         calls.insert(calls.begin() + static_cast<std::ptrdiff_t>(at),
                      test_call(Op::kBarrier, "", {}, "debug", "my.cpp:3"));
       },
       4, "made another call: barrier beside all_reduce", "made a call that", "barrier", "debug", branch},
      {"order", [](TestCalls& calls, size_t at) { std::swap(calls[at], calls[at + 1]); }, 0, "skipped a call that",
       "made two calls in the other order", "", "", "order"},
  };
}

/// All ranks made the training calls; `culprit` with the fault in its third step. They stop `more` calls later.
std::vector<RankReport> ranks_with(const MismatchCase& fault, int world, int culprit, size_t more) {
  const TestCalls usual = training_calls(6);
  const size_t at = 2 * training_calls(1).size() + fault.call;
  std::vector<RankReport> reports;
  for (int rank = 0; rank < world; ++rank) {
    TestCalls calls = usual;
    if (rank == culprit) fault.inject(calls, at);
    calls.resize(at + 1 + more);
    RankReport report = running_rank(rank, world);
    wait_in_last(add_calls(report, calls), 0.2);
    reports.push_back(std::move(report));
  }
  return reports;
}

TEST(Mismatch, NamesCulpritCallAndReason) {
  for (const auto& fault : all_cases()) {
    for (const int world : {2, 3, 4, 8}) {
      for (const size_t more : {0, 9}) {
        for (const int culprit : {0, 1, world - 1}) {
          SCOPED_TRACE(fault.name + ", world " + std::to_string(world) + ", more " + std::to_string(more) +
                       ", culprit " + std::to_string(culprit));
          const auto reports = ranks_with(fault, world, culprit, more);
          const Judgement judgement = judge(census_of(reports));
          const Diagnosis& found = judgement.diagnosis;
          ASSERT_EQ(judgement.verdict, Verdict::kEnd);
          EXPECT_EQ(found.fault, Fault::kMismatch);
          EXPECT_EQ(found.exit_code, 6);
          EXPECT_EQ(found.group, "data");
          EXPECT_EQ(found.seq, 13 + fault.call);
          EXPECT_TRUE(recorded(reports, found.op, found.label)) << found.op << " " << found.label;
          ASSERT_EQ(found.sides.size(), 2U);
          EXPECT_EQ(found.between_two, world == 2);
          EXPECT_EQ(found.culprits, RankSet({culprit})) << found.text();
          const std::string& headline = more == 0 ? fault.headline_stuck : fault.headline_going_on;
          EXPECT_NE(found.headline.find(headline), std::string::npos) << found.text();
          EXPECT_NE(found.fix.find(fault.fix), std::string::npos) << found.text();
          if (!fault.op.empty()) {
            EXPECT_EQ(found.op + " " + found.label, fault.op + " " + fault.label) << found.text();
          }
          for (const auto& side : found.sides) EXPECT_NE(found.text().find(side.call), std::string::npos);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// The odd call comes from another line, and has a label of its own where one is given.
MismatchCase at_another_line(MismatchCase fault, std::string site, std::optional<std::string> label = std::nullopt) {
  fault.inject = [inject = fault.inject, site = std::move(site), label = std::move(label)](TestCalls& calls,
                                                                                           size_t at) {
    inject(calls, at);
    calls[at].site = site;
    if (label) calls[at].label = *label;
  };
  return fault;
}

// A metric summed beside a gradient: padded, one would be added to the other.
TEST(Mismatch, CallsFromTwoLinesAreNotToldToBePadded) {
  const MismatchCase shape = all_cases()[2];
  ASSERT_EQ(shape.name, "shape");
  const std::string fix = judge(census_of(ranks_with(at_another_line(shape, "metrics.py:7"), 3, 1, 0))).diagnosis.fix;
  EXPECT_EQ(fix.find("pad"), std::string::npos) << fix;
  EXPECT_NE(fix.find("around metrics.py:7 and clip.cpp:30"), std::string::npos) << fix;
}

// A rank alone saves what is sharded, while the others gather it for their next step.
TEST(Mismatch, CallsOfTwoPlacesAreTwoCallsAndNotOneThatDiffers) {
  const MismatchCase dtype = all_cases()[1];
  ASSERT_EQ(dtype.name, "dtype");
  const auto found = [](const MismatchCase& fault) { return judge(census_of(ranks_with(fault, 3, 1, 0))).diagnosis; };
  const Diagnosis one = found(at_another_line(dtype, "save.py:7"));
  EXPECT_EQ(one.headline, "rank 1 sent another dtype: i32 beside f32");
  EXPECT_TRUE(
      one.fix.starts_with("look first for a branch on the rank or on the data around save.py:7 and clip.cpp:30"))
      << one.fix;
  const Diagnosis two = found(at_another_line(dtype, "save.py:7", ""));
  EXPECT_TRUE(two.headline.starts_with(
      "rank 1 made another call: all_reduce sum i32[2, 3] beside all_reduce sum f32[2, 3] \"norm\""))
      << two.headline;
}

// One evaluates and gathers what its batch holds, the others count what they train with.
TEST(Mismatch, RanksInDifferentPartsOfTheProgramAreToldSo) {
  auto reports = ranks_with(all_cases()[2], 3, 1, 0);
  for (auto& report : reports) {
    report.phase = report.rank == 1 ? Phase::kEvaluate : Phase::kBackward;
    report.structures = {report.rank == 1
                             ? R"({"label": "norm", "title": "batch", "nodes": [["labels", "int64 tensor, 1-d"]]})"
                             : R"({"label": "norm", "title": "values", "nodes": [["", "int64 tensor, 0-d"]]})"};
  }
  const Diagnosis found = judge(census_of(reports)).diagnosis;
  EXPECT_EQ(found.headline, "rank 1 is elsewhere: evaluating, where ranks 0, 2 are in the backward pass");
  EXPECT_NE(found.fix.find("evaluate, save and stop at the same steps"), std::string::npos) << found.fix;
  reports[1].phase = Phase::kForward;  // which an evaluation has too
  EXPECT_NE(judge(census_of(reports)).diagnosis.headline.find("holds another structure"), std::string::npos);
}

TEST(Mismatch, ShowsBothSidesOfTwo) {
  MismatchCase dtype = all_cases()[1];
  const Diagnosis found = judge(census_of(ranks_with(dtype, 2, 1, 0))).diagnosis;
  EXPECT_EQ(
      found.text(),
      "rank 1 sent another dtype: i32 beside f32\n"
      "  call    #17 of group \"data\"\n"
      "          rank 0  all_reduce sum f32[2, 3] \"norm\"  at clip.cpp:30\n"
      "          rank 1  all_reduce sum i32[2, 3] \"norm\"  at clip.cpp:30\n"
      "  place   rank 1: in the forward pass, after step 3\n"
      "  why     \"norm\" has dtype i32 there; the transport moves bytes and would not notice; the sides are equally "
      "strong, so either may be the one that is wrong\n"
      "  fix     give the tensor one dtype on all ranks before clip.cpp:30; for a whole model: the same torch_dtype");
}

// Two of three ranks part in their first call, and the third comes a moment later: which of both is odd, it tells.
TEST(Mismatch, WaitsForTheRankThatTipsTheScales) {
  const TestCalls usual = {test_call(Op::kAllGather, "i64", {3}, "parameters")},
                  odd = {test_call(Op::kAllGather, "i64", {3}, "others")};
  std::vector<RankReport> ranks = {running_rank(0, 3), running_rank(1, 3), running_rank(2, 3)};
  add_calls(ranks[1], odd);
  add_calls(ranks[2], usual);
  for (auto& rank : ranks) rank.read_ns = 500'000'000;
  EXPECT_EQ(judge(census_of(ranks)).verdict, Verdict::kFine);
  for (auto& rank : ranks) rank.read_ns = 1'500'000'000;
  EXPECT_EQ(judge(census_of(ranks)).verdict, Verdict::kEnd) << "it does not come";
  for (auto& rank : ranks) rank.read_ns = 500'000'000;
  add_calls(ranks[0], usual);
  const Judgement found = judge(census_of(ranks));
  EXPECT_EQ(found.verdict, Verdict::kEnd);
  EXPECT_EQ(found.diagnosis.culprits.phrase(), "rank 1");
}

// The silent kind: nobody is blocked, and the calls that differ are long past.
TEST(Mismatch, IsFoundInThePast) {
  for (const size_t tail : {8, 64, 1024}) {
    const TestCalls usual = training_calls(100);
    TestCalls skipped = usual;
    skipped.erase(skipped.begin() + 570);
    std::vector<RankReport> reports;
    for (int rank = 0; rank < 4; ++rank) {
      RankReport report = running_rank(rank, 4);
      add_calls(report, rank == 2 ? skipped : usual, "data", tail);
      reports.push_back(std::move(report));
    }
    const Judgement judgement = judge(census_of(reports));
    ASSERT_EQ(judgement.verdict, Verdict::kEnd) << tail;
    EXPECT_EQ(judgement.diagnosis.culprits, RankSet({2}));
    EXPECT_TRUE(recorded(reports, judgement.diagnosis.op, judgement.diagnosis.label));
    if (tail >= 64) {
      EXPECT_EQ(judgement.diagnosis.seq, 571U);
    }
  }
}

// The calls that both sides still have are equal; only the histories tell that they parted before.
TEST(Mismatch, BeforeTheFirstRecordedCallIsToldAsSuch) {
  const TestCall same = test_call(Op::kAllReduce, "f32", {4}, "loss", "loop.cpp:7", ReduceOp::kSum);
  TestCalls usual(200, same), odd = usual;
  odd[20].signature.reduce = ReduceOp::kMax;
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    RankReport report = running_rank(rank, 3);
    add_calls(report, rank == 1 ? odd : usual, "data", 64);
    reports.push_back(std::move(report));
  }
  const Judgement judgement = judge(census_of(reports));
  ASSERT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(judgement.diagnosis.culprits, RankSet({1}));
  EXPECT_NE(judgement.diagnosis.headline.find("before the calls that are recorded"), std::string::npos)
      << judgement.diagnosis.text();
}

// Two have come to the call and differ; who is right shows when the others come, which takes a moment.
TEST(Mismatch, WaitsAMomentForAMajority) {
  const auto reports_at = [](int64_t since_ns) {
    auto reports = ranks_with(all_cases()[1], 5, 0, 0);
    for (const int rank : {2, 3, 4}) {
      RankReport late = running_rank(rank, 5);
      TestCalls before = training_calls(3);
      before.resize(16);
      add_calls(late, before);
      reports[static_cast<size_t>(rank)] = late;
    }
    for (auto& report : reports) report.read_ns = 17'000'000 + since_ns;
    return reports;
  };
  EXPECT_EQ(judge_mismatch(census_of(reports_at(100'000'000))).verdict, Verdict::kFine);
  const Judgement late = judge_mismatch(census_of(reports_at(1'100'000'000)));
  EXPECT_EQ(late.verdict, Verdict::kEnd);
  EXPECT_TRUE(late.diagnosis.between_two);
  EXPECT_EQ(late.diagnosis.culprits, RankSet({0}));  // by habit

  auto over = reports_at(100'000'000);  // nobody comes any more
  for (const size_t rank : {2, 3, 4}) over[rank].life = Life::kFinished;
  EXPECT_EQ(judge_mismatch(census_of(over)).verdict, Verdict::kEnd);
}

TEST(Mismatch, ThreeSidesAreAllShown) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 8; ++rank) {
    TestCalls calls = training_calls(3);
    if (rank == 2) calls.back().label = "a";
    if (rank == 5) calls.back().label = "b";
    reports.push_back(running_rank(rank, 8));
    add_calls(reports.back(), calls);
  }
  const Diagnosis found = judge(census_of(reports)).diagnosis;
  EXPECT_EQ(found.culprits, RankSet({2, 5}));
  EXPECT_EQ(found.sides.size(), 3U);
  EXPECT_FALSE(found.between_two);
}

TEST(Mismatch, NobodyIsAccusedForBeingAheadOrBehind) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 8; ++rank) {
    TestCalls calls = training_calls(40);
    calls.resize(static_cast<size_t>(rank) * 30);
    reports.push_back(running_rank(rank, 8));
    add_calls(reports.back(), calls, "data", 64);
  }
  EXPECT_EQ(judge(census_of(reports)).verdict, Verdict::kFine);
}

// A rank that made "norm" where others made "loss" may have left "loss" out, or make it next.
TEST(Mismatch, WaitsForTheNextCallWhereItTellsWhatWasDone) {
  TestCalls usual = training_calls(4), other = usual;
  usual.push_back(test_call(Op::kAllReduce, "f32", {4}, "first", "step.cpp:1", ReduceOp::kSum));
  usual.push_back(test_call(Op::kAllReduce, "f32", {4}, "second", "step.cpp:2", ReduceOp::kSum));
  other.push_back(usual[usual.size() - 1]);
  const auto judged = [&](const TestCalls& of_rank_1, double seconds_ago, const std::string& words = "") {
    std::vector<RankReport> reports;
    for (int rank = 0; rank < 3; ++rank) {
      RankReport report = running_rank(rank, 3);
      if (rank == 0 && !words.empty())
        report.last_words = LastWordsReport{.exit_code = 70, .at_ns = report.read_ns, .message = words};
      GroupReport& group = add_calls(report, rank == 1 ? of_rank_1 : usual);
      for (auto& record : group.tail) {
        record.entered_ns = report.read_ns - static_cast<int64_t>(seconds_ago * 1e9);
        record.state = CallState::kDone;
      }
      reports.push_back(report);
    }
    return judge_mismatch(census_of(reports));
  };
  EXPECT_EQ(judged(other, 0.01).verdict, Verdict::kFine);
  EXPECT_EQ(judged(other, 0.01, "the sequence of calls differs").verdict, Verdict::kEnd) << "the job ends now";
  EXPECT_NE(judged(other, 0.4).diagnosis.headline.find("skipped a call"), std::string::npos);
  other.push_back(usual[usual.size() - 2]);
  EXPECT_NE(judged(other, 0.01).diagnosis.headline.find("other order"), std::string::npos);
}

// All stand in the call where they part: whether the odd one comes to it later nobody can know.
TEST(Mismatch, SaysThatACallMayComeLaterWhereNobodyHasGoneOn) {
  TestCalls usual;
  for (int step = 0; step < 4; ++step) {
    usual.push_back(test_call(Op::kAllReduce, "f32", {4}, "", "step.cpp:1", ReduceOp::kSum));
    usual.push_back(test_call(Op::kBroadcast, "f32", {4}, "", "step.cpp:2"));
  }
  TestCalls other(usual.begin(), usual.end() - 2);
  other.push_back(usual.back());
  usual.pop_back();
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(running_rank(rank, 3));
    add_calls(reports.back(), rank == 2 ? other : usual);
  }
  const Diagnosis found = judge_mismatch(census_of(reports)).diagnosis;
  EXPECT_EQ(found.culprits, RankSet({2}));
  EXPECT_NE(found.headline.find("skipped a call that ranks 0, 1 made, or makes it in another order"), std::string::npos)
      << found.headline;
}

// Of which one shows what it gathers, and the other makes a call of DDP's.
TEST(Mismatch, RanksThatStandInDifferentPartsAreToldSoByTheirCallsAlone) {
  auto reports = ranks_with(at_another_line(all_cases()[2], "eval.py:7"), 3, 1, 0);
  for (auto& report : reports) report.phase = report.rank == 1 ? Phase::kEvaluate : Phase::kForward;
  EXPECT_EQ(judge_mismatch(census_of(reports)).diagnosis.headline,
            "rank 1 is elsewhere: evaluating, where ranks 0, 2 are in the forward pass");
  reports[1].groups[0].tail.back().state = CallState::kDone;
  EXPECT_TRUE(judge_mismatch(census_of(reports)).diagnosis.headline.starts_with("rank 1 sent another shape"))
      << "it has left that call, and may stand elsewhere since";
}

// The loss of a step, and how many labels an evaluation has: both are only values.
TEST(Mismatch, ValuesOfTwoLinesAreNotOneValue) {
  auto reports = ranks_with(at_another_line(all_cases()[2], "eval.py:7 via operations.py:355"), 3, 1, 0);
  for (auto& report : reports) {
    report.phase = report.rank == 1 ? Phase::kEvaluate : Phase::kRun;
    report.structures = {report.rank == 1
                             ? R"({"label": "norm", "title": "values", "nodes": [["", "int64 tensor, 1-d"]]})"
                             : R"({"label": "norm", "title": "values", "nodes": [["", "float32 tensor, 1-d"]]})"};
  }
  EXPECT_TRUE(judge_mismatch(census_of(reports)).diagnosis.headline.starts_with("rank 1 is elsewhere: evaluating"));
  for (auto& report : reports) report.phase = Phase::kRun;
  const Diagnosis found = judge_mismatch(census_of(reports)).diagnosis;
  EXPECT_EQ(found.headline.find("holds another"), std::string::npos) << found.headline;
}

}  // namespace
}  // namespace lockstep
