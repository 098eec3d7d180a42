#include "lockstep/guard/strayed.h"

#include <gtest/gtest.h>

#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

const TestCall kGather = test_call(Op::kAllGather, "f32", {8}, "gather"),
               kGrads = test_call(Op::kReduceScatter, "f32", {8}, "grads"),
               kLoss = test_call(Op::kAllReduce, "f32", {4}, "loss"),
               kContract = test_call(Op::kAllGather, "i64", {10}, "contract");

struct Made {
  const char* group;
  TestCall call;
};

/// A rank that made these calls in this order, in groups of their own.
RankReport rank_with(const std::vector<Made>& made) {
  RankReport report = running_rank(1, 3);
  for (const char* name : {"control", "data"}) {
    TestCalls calls;
    std::vector<int64_t> moments;
    for (size_t i = 0; i < made.size(); ++i) {
      if (std::string(made[i].group) != name) continue;
      calls.push_back(made[i].call);
      moments.push_back(static_cast<int64_t>(i) * 1'000'000);
    }
    GroupReport& group = add_calls(report, calls, name);
    for (size_t i = 0; i < moments.size(); ++i) group.tail[i].entered_ns = moments[i];
  }
  return report;
}

std::vector<Made> steps(size_t count) {
  std::vector<Made> made;
  for (size_t i = 0; i < count; ++i) {
    made.insert(made.end(), {{"control", kContract}, {"data", kGather}, {"data", kGrads}, {"control", kLoss}});
  }
  return made;
}

TEST(Strayed, FindsCallsThatWereLeftOutAcrossGroups) {
  auto made = steps(4);
  made.insert(made.end(), {{"control", kContract}, {"data", kGather}, {"control", kContract}});
  const auto found = strayed(rank_with(made));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->moved);
  EXPECT_EQ(found->group, "data");
  ASSERT_EQ(found->skipped.size(), 2U);
  EXPECT_EQ(found->skipped[0].label.view(), "grads");
  EXPECT_EQ(found->skipped[1].label.view(), "loss");
}

TEST(Strayed, FindsACallThatWasMadeInAnotherGroup) {
  auto made = steps(4);
  made.insert(made.end(), {{"control", kContract}, {"data", kGather}, {"data", kGrads}, {"data", kLoss}});
  const auto found = strayed(rank_with(made));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->moved);
  EXPECT_EQ(found->group, "control");
  EXPECT_EQ(found->skipped.at(0).label.view(), "loss");
}

TEST(Strayed, IsSilentOnTheUsualPathAndWhereNothingCameBefore) {
  EXPECT_FALSE(strayed(rank_with(steps(4))));
  EXPECT_FALSE(strayed(rank_with(steps(1))));
  EXPECT_FALSE(strayed(rank_with({})));
  auto made = steps(4);
  made.push_back({"control", kContract});
  made.push_back({"control", test_call(Op::kBarrier, "", {}, "new here")});
  EXPECT_FALSE(strayed(rank_with(made)));
}

}  // namespace
}  // namespace lockstep
