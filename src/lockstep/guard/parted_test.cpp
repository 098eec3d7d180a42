// What the agent sees between two roll calls: ranks that parted without noticing, and ranks that never came.
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/guard/local_ranks.h"
#include "lockstep/guard/recorder.h"
#include "lockstep/guard/unix_socket.h"

namespace lockstep {
namespace {

class Parted : public ::testing::Test {
 protected:
  Parted() {
    for (int rank = 0; rank < 2; ++rank) {
      recorders_[rank].add_group("data");
      ranks_.adopt({.rank = rank, .world_size = 2}, recorders_[rank].memory());
    }
  }
  void call(int rank, ReduceOp reduce, std::string_view label = "loss") {
    const std::array<int64_t, 1> shape{4};
    CallSignature signature = CallSignature::of(Op::kAllReduce, "f32", shape);
    signature.reduce = reduce;
    recorders_[rank].enter(0, signature, label, std::source_location::current());
  }

  LocalRanks ranks_{0};
  std::array<Recorder, 2> recorders_;
};

TEST_F(Parted, IsSeenAtTheCallAndLongAfterIt) {
  EXPECT_FALSE(ranks_.compare().parted);
  call(0, ReduceOp::kSum);
  EXPECT_FALSE(ranks_.compare().parted);  // the other has not come to it
  call(1, ReduceOp::kSum);
  EXPECT_FALSE(ranks_.compare().parted);
  call(0, ReduceOp::kSum);
  call(1, ReduceOp::kMax);
  EXPECT_TRUE(ranks_.compare().parted);
  for (int more = 0; more < 3000; ++more) {  // the transport went on, and the rings have forgotten the call
    call(0, ReduceOp::kSum);
    call(1, ReduceOp::kSum);
  }
  EXPECT_TRUE(ranks_.compare().parted);
}

TEST_F(Parted, SeesTwoCallsThatWereSwapped) {
  call(0, ReduceOp::kSum, "loss");
  call(1, ReduceOp::kSum, "tokens");
  EXPECT_TRUE(ranks_.compare().parted);
}

TEST_F(Parted, LetsARankBeFarAhead) {
  for (int more = 0; more < 3000; ++more) call(0, ReduceOp::kSum);
  EXPECT_FALSE(ranks_.compare().parted);
  call(1, ReduceOp::kSum);
  EXPECT_FALSE(ranks_.compare().parted);
}

// Found by a job whose second rank never started: its agent stayed for ever.
TEST(LocalRanksGone, DoesNotWaitForRanksThatNeverJoined) {
  LocalRanks ranks(0);
  ranks.expect(0, 0, 2, 0);
  ranks.expect(1, 1, 2, 0);
  EXPECT_FALSE(ranks.all_gone());
  Recorder recorder;
  const int socket = connect_to_name(ranks.name());
  ASSERT_TRUE(send_packet(socket, R"({"rank": 0})", recorder.memory()->fd()));
  const Deadline deadline(std::chrono::seconds(10));
  while (!ranks.any_joined() && !deadline.passed()) ranks.pump();
  EXPECT_FALSE(ranks.all_gone());
  ::close(socket);
  while (!ranks.all_gone() && !deadline.passed()) ranks.pump();
  EXPECT_TRUE(ranks.all_gone());
}

}  // namespace
}  // namespace lockstep
