#include "lockstep/tasks/rows_progress.h"

#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class Seen final : public EventSink {
 public:
  void on(const Event& event) override { done.push_back(std::get<Progress>(event).done); }
  std::vector<int64_t> done;
};

std::vector<int64_t> told(World world, const std::vector<int64_t>& reached) {
  Seen seen;
  EventBus events;
  events.add(seen);
  Job job;
  job.world = world;
  RowsProgress progress(job, events, "infer", 6);
  for (const int64_t done : reached) progress.reach(done);
  progress.finish();
  return seen.done;
}

TEST(RowsProgress, IsWholeWhenEveryRankHasSaidSo) {
  EXPECT_EQ(told({.rank = 0, .size = 3}, {3, 6, 9}), (std::vector<int64_t>{0, 3, 5, 6}));
  EXPECT_EQ(told({.rank = 0, .size = 1}, {1, 5, 6}), (std::vector<int64_t>{0, 1, 5, 6})) << "alone it knows";
  EXPECT_EQ(told({.rank = 1, .size = 3}, {3, 6}), std::vector<int64_t>{}) << "one rank reports";
}

}  // namespace
}  // namespace lockstep
