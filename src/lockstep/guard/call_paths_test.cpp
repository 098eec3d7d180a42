#include "lockstep/guard/call_paths.h"

#include <initializer_list>

#include <gtest/gtest.h>

#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

/// Three ranks, of which rank 1 makes `odd` and the others `usual`, each stuck in its last call.
Diagnosis of_three(const TestCalls& usual, const TestCalls& odd) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 3; ++rank) {
    reports.push_back(running_rank(rank, 3));
    wait_in_last(add_calls(reports.back(), rank == 1 ? odd : usual), 0.2);
  }
  return judge_mismatch(census_of(reports)).diagnosis;
}

TestCalls joined(std::initializer_list<TestCalls> parts) {
  TestCalls all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// A pass over the modules of FSDP.
TestCalls gathers(std::initializer_list<int> modules, const std::string& site) {
  TestCalls all;
  for (const int m : modules) {
    all.push_back(test_call(Op::kAllGather, "f32", {9}, std::to_string(m) + " gather", site));
    if (site.starts_with("b")) all.push_back(test_call(Op::kReduceScatter, "f32", {9}, "", site, ReduceOp::kSum));
  }
  return all;
}

// `continue` where a loss is no number: the rank begins the next step, or, as far as calls tell, this one once more.
TEST(CallPaths, AStepThatIsBegunAgainIsToldAsEither) {
  const TestCalls forward = gathers({0, 1, 2, 3}, "f.py:12"), backward = gathers({3, 2, 1, 0}, "b.py:16");
  const TestCalls steps = joined({forward, backward, forward, backward, forward});
  const Diagnosis found = of_three(joined({steps, {backward[0]}}), joined({steps, {forward[0]}}));
  EXPECT_EQ(found.headline, "rank 1 left out 8 calls that ranks 0, 2 made, or made 4 calls once more");
  EXPECT_NE(found.fix.find("around f.py:12 and b.py:16"), std::string::npos) << found.fix;
}

TEST(CallPaths, WhoLeavesHisHabitHasNotMadeMore) {
  const TestCalls step{test_call(Op::kBroadcast, "f32", {4}, "", "train.py:12", ReduceOp::kNone, 0),
                       test_call(Op::kAllReduce, "f32", {9}, "", "train.py:12", ReduceOp::kSum)};
  const TestCalls eval{test_call(Op::kAllGather, "i64", {4}, "", "eval.py:9")};
  const TestCalls begun = joined({step, step, step, eval, eval});
  const Diagnosis shorter = of_three(joined({begun, eval}), joined({begun, step})),
                  longer = of_three(joined({begun, {step[0]}}), joined({begun, eval}));
  EXPECT_TRUE(shorter.headline.starts_with("rank 1 made another call: ")) << shorter.headline;
  EXPECT_EQ(shorter.headline.find("did not"), std::string::npos) << shorter.headline;
  EXPECT_EQ(longer.headline.find("skipped"), std::string::npos) << longer.headline;
}

TEST(CallPaths, AnotherModuleOfOneLineIsNotALongWayBehind) {
  const auto step = [](int expert) {
    return joined({gathers({7, expert}, "f.py:11"), gathers({expert, 7}, "b.py:23")});
  };
  const TestCalls steps = joined({step(0), step(1), step(2)});
  const Diagnosis found =
      of_three(joined({steps, gathers({7, 0}, "f.py:11")}), joined({steps, gathers({7, 1}, "f.py:11")}));
  EXPECT_EQ(found.headline, "rank 1 sent another tensor: \"1 gather\" beside \"0 gather\"");
  EXPECT_NE(found.fix.find("what chooses which of them comes at f.py:11 ("), std::string::npos) << found.fix;
}

TEST(CallPaths, CallsOfAThreadAreToldToHaveAGroupOfTheirOwn) {
  struct Case {
    TestCall of_thread;
    std::string why, fix;
  };
  for (const auto& [of_thread, why, fix] :
       {Case{test_call(Op::kAllReduce, "i64", {1}, "", "metrics.py:8 (thread)", ReduceOp::kSum),
             "is made by a thread of its own beside", "give the thread that calls at metrics.py:8 a group of its own"},
        Case{test_call(Op::kBroadcast, "u8", {9}, "", "futures/thread.py:58"), "is made by a thread of a library",
             "give what works in the background a group of its own"}}) {
    const auto train = test_call(Op::kAllReduce, "f32", {4}, "", "train.py:30", ReduceOp::kSum);
    const TestCalls usual{train, train, of_thread, train}, other{train, train, train, of_thread};
    const Diagnosis found = of_three(usual, other);
    EXPECT_EQ(found.culprits, RankSet({1}));
    EXPECT_NE(found.why.find(why), std::string::npos) << found.why;
    EXPECT_TRUE(found.fix.starts_with(fix)) << found.fix;
  }
}

}  // namespace
}  // namespace lockstep
