#include "lockstep/tasks/resume_check.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ResumeCheck, TellsThatEvaluationsAreComparedByAnotherMetric) {
  TrainerState before;
  before.max_steps = 4;
  before.order = RowOrder{};
  before.best_metric = 1.4;
  before.best_of = "lowest loss";
  TrainerState now = before;
  EXPECT_EQ(resume_changes(before, now), "");
  now.compare_by("highest anls");
  EXPECT_NE(resume_changes(before, now)
                .find("goes on with highest anls as the best evaluation, which there is none of yet (was lowest loss)"),
            std::string::npos);
  before.best_metric.reset();
  EXPECT_EQ(resume_changes(before, now).find("anls"), std::string::npos) << "nothing was evaluated";
}

}  // namespace
}  // namespace lockstep
