#include "lockstep/plan/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// "F0 F1 B0": one stage's own order.
std::string of_stage(const std::vector<PipelineOp>& order, int stage) {
  std::string out;
  for (const auto& op : order) {
    if (op.stage != stage) continue;
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", op.pass == Pass::kForward ? 'F' : 'B', op.micro_batch);
  }
  return out;
}

TEST(Pipeline, RunsTheTextbookOrderOfFourStagesAndSixMicroBatches) {
  const auto order = one_f_one_b(4, 6);
  EXPECT_EQ(of_stage(order, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(of_stage(order, 1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(of_stage(order, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(of_stage(order, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Pipeline, IssuesTwoStagesAndTwoMicroBatchesSo) {
  using enum Pass;
  const std::vector<PipelineOp> expected{{0, 0, kForward}, {1, 0, kForward},  {0, 1, kForward},  {1, 0, kBackward},
                                         {1, 1, kForward}, {0, 0, kBackward}, {1, 1, kBackward}, {0, 1, kBackward}};
  EXPECT_EQ(one_f_one_b(2, 2), expected);
}

TEST(Pipeline, OfOneStageIsPlainAccumulation) { EXPECT_EQ(of_stage(one_f_one_b(1, 3), 0), "F0 B0 F1 B1 F2 B2"); }

TEST(Pipeline, WithOneMicroBatchGoesThereAndBack) {
  using enum Pass;
  const std::vector<PipelineOp> expected{{0, 0, kForward},  {1, 0, kForward},  {2, 0, kForward},
                                         {2, 0, kBackward}, {1, 0, kBackward}, {0, 0, kBackward}};
  EXPECT_EQ(one_f_one_b(3, 1), expected);
}

TEST(Pipeline, CountsWhatAStageHasInFlight) {
  EXPECT_EQ(micro_batches_in_flight(0, 4, 8), 4);
  EXPECT_EQ(micro_batches_in_flight(3, 4, 8), 1);
  EXPECT_EQ(micro_batches_in_flight(0, 4, 2), 2);
  EXPECT_THROW(micro_batches_in_flight(4, 4, 2), InternalError);
}

/// Every op once, behind what it depends on, never more in flight than the rule allows, and as many as that at its
/// peak.
TEST(Pipeline, KeepsItsPromisesForAllSmallSizes) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int count = 1; count <= 9; ++count) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, count));
      const auto order = one_f_one_b(stages, count);
      ASSERT_EQ(order.size(), static_cast<size_t>(2 * stages * count));
      std::vector<int> forwards(static_cast<size_t>(stages)), backwards(forwards), peak(forwards);
      for (const auto& op : order) {
        const auto s = static_cast<size_t>(op.stage);
        if (op.pass == Pass::kForward) {
          EXPECT_EQ(op.micro_batch, forwards[s]++) << "forwards in order";
          if (s > 0) {
            EXPECT_GT(forwards[s - 1], op.micro_batch) << "not before the stage before it";
          }
        } else {
          EXPECT_EQ(op.micro_batch, backwards[s]++) << "backwards in order";
          EXPECT_GT(forwards[s], op.micro_batch) << "not before its own forward";
          if (op.stage + 1 < stages) {
            EXPECT_GT(backwards[s + 1], op.micro_batch) << "not before the stage behind it";
          }
        }
        peak[s] = std::max(peak[s], forwards[s] - backwards[s]);
      }
      for (int s = 0; s < stages; ++s) {
        EXPECT_EQ(peak[static_cast<size_t>(s)], micro_batches_in_flight(s, stages, count)) << "stage " << s;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
