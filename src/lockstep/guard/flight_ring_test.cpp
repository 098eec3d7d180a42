#include "lockstep/guard/flight_ring.h"

#include <atomic>
#include <memory>
#include <regex>

#include <gtest/gtest.h>

#include "lockstep/base/worker.h"

namespace lockstep {
namespace {

const CallSignature kGather = CallSignature::of(Op::kAllGather, "bf16", std::array<int64_t, 1>{4096});

CallSignature with(CallSignature signature, auto change) {
  change(signature);
  return signature;
}

TEST(CallSignature, DescribesTheCall) {
  EXPECT_EQ(kGather.describe(), "all_gather bf16[4096]");
  CallSignature broadcast = CallSignature::of(Op::kBroadcast, "i64", std::array<int64_t, 2>{3, 1});
  broadcast.root = 2;
  EXPECT_EQ(broadcast.describe(), "broadcast i64[3, 1] from rank 2");
  CallSignature sum = CallSignature::of(Op::kAllReduce, "f32", {});
  sum.reduce = ReduceOp::kSum;
  EXPECT_EQ(sum.describe(), "all_reduce sum f32[]");
  EXPECT_EQ(CallSignature{.op = Op::kBarrier}.describe(), "barrier");
}

TEST(CallSignature, FoldsMoreDimensionsThanFit) {
  const auto wide = CallSignature::of(Op::kAllGather, "f32", std::array<int64_t, 7>{1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(wide.describe(), "all_gather f32[1, 2, 3, 4, 210]");
  EXPECT_EQ(wide.numel(), 5040);
}

TEST(CallSignature, HashesEveryField) {
  const std::array<CallSignature, 8> others{with(kGather, [](auto& one) { one.op = Op::kReduceScatter; }),
                                            with(kGather,
                                                 [](auto& one) {
                                                   one.dtype = {'f', '3', '2'};
                                                 }),
                                            with(kGather, [](auto& one) { one.dims[0] = 4095; }),
                                            with(kGather, [](auto& one) { one.root = 0; }),
                                            with(kGather, [](auto& one) { one.reduce = ReduceOp::kMax; }),
                                            with(kGather, [](auto& one) { one.has_splits = 1; }),
                                            CallSignature::of(Op::kAllGather, "bf16", std::array<int64_t, 2>{64, 64}),
                                            CallSignature::of(Op::kAllGather, "bf16", std::array<int64_t, 2>{4096, 1})};
  for (const auto& other : others) EXPECT_NE(other.hash(), kGather.hash()) << other.describe();
}

TEST(FlightRing, KeepsTheLastCallsInOrder) {
  const auto ring = std::make_unique<FlightRing>();
  EXPECT_TRUE(ring->last(5).empty());
  for (size_t i = 1; i <= FlightRing::kSize + 10; ++i) EXPECT_EQ(ring->enter(kGather, "layer"), i);
  const auto all = ring->last(2 * FlightRing::kSize);
  ASSERT_EQ(all.size(), FlightRing::kSize);
  EXPECT_EQ(all.front().seq, 11U);
  EXPECT_EQ(all.back().seq, FlightRing::kSize + 10);
  ASSERT_EQ(ring->last(3).size(), 3U);
  EXPECT_EQ(ring->last(3).front().seq, FlightRing::kSize + 8);
}

TEST(FlightRing, TellsStateAndLabel) {
  const auto ring = std::make_unique<FlightRing>();
  const auto first = ring->enter(kGather, "text.layers.7 gather");
  const auto second = ring->enter(kGather, std::string(200, 'x'));
  ring->set_state(first, CallState::kLaunched);
  ring->set_state(second, CallState::kDone);
  const auto records = ring->last(2);
  const auto told = [](const FlightRecord& record) {  // whatever time has passed
    return std::regex_replace(record.describe(), std::regex(R"( \d+\.\ds)"), " 0.0s");
  };
  EXPECT_EQ(told(records[0]), "#1 all_gather bf16[4096] \"text.layers.7 gather\": launched for 0.0s now");
  EXPECT_EQ(told(records[1]), "#2 all_gather bf16[4096] \"" + std::string(79, 'x') + "\": done in 0.0s");
}

TEST(FlightRing, ACallIsOverWhenItIsSaidToBeAndItsSuccessorIsNot) {
  const auto ring = std::make_unique<FlightRing>();
  const auto first = ring->enter(kGather, "", "", 0, 1000);
  ring->set_over(first, true, 4000);
  const auto broken = ring->find(first);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->state, CallState::kFailed);
  EXPECT_EQ(broken->entered_ns, 1000);
  EXPECT_EQ(broken->done_ns, 4000);
  for (size_t i = 0; i < FlightRing::kSize; ++i) ring->enter(kGather, "");
  ring->set_over(first, false, 5000);  // its place is another call's by now
  const auto successor = ring->find(first + FlightRing::kSize);
  ASSERT_TRUE(successor.has_value());
  EXPECT_EQ(successor->state, CallState::kEntered);
}

TEST(FlightRing, HistoryIsAFunctionOfTheSequence) {
  const auto history = [](const std::vector<std::pair<CallSignature, std::string>>& calls) {
    const auto ring = std::make_unique<FlightRing>();
    for (const auto& [signature, label] : calls) ring->enter(signature, label, "here.cpp:1", 7);
    EXPECT_EQ(ring->find(ring->entered())->history, ring->history());
    return ring->history();
  };
  const CallSignature reduce = CallSignature::of(Op::kReduceScatter, "f32", std::array<int64_t, 1>{8});
  const auto usual = history({{kGather, "a"}, {reduce, "b"}});
  EXPECT_EQ(usual, history({{kGather, "a"}, {reduce, "b"}}));
  EXPECT_NE(usual, history({{kGather, "a"}}));
  EXPECT_NE(usual, history({{reduce, "b"}, {kGather, "a"}}));
  // Two equal calls on other tensors: only the label tells them apart.
  EXPECT_NE(history({{kGather, "a"}, {kGather, "b"}}), history({{kGather, "b"}, {kGather, "a"}}));
}

TEST(FlightRing, FindsTheFirstCallThatIsLaunchedAndNotOver) {
  auto ring = std::make_unique<FlightRing>();
  uint64_t through = 0;
  EXPECT_FALSE(ring->first_launched(through));
  for (int i = 0; i < 5; ++i) ring->enter(kGather, "");
  EXPECT_FALSE(ring->first_launched(through)) << "none has begun";
  for (const uint64_t seq : {2, 3, 5}) ring->set_state(seq, CallState::kLaunched);
  ASSERT_TRUE(ring->first_launched(through));
  EXPECT_EQ(ring->first_launched(through)->seq, 2u) << "behind one that has not begun";
  EXPECT_EQ(through, 0u);
  for (const uint64_t seq : {1, 2, 4}) ring->set_state(seq, CallState::kDone);
  EXPECT_EQ(ring->first_launched(through)->seq, 3u);
  EXPECT_EQ(through, 2u);
  ring->set_state(3, CallState::kFailed);
  EXPECT_EQ(ring->first_launched(through)->seq, 5u);
  EXPECT_EQ(through, 4u);
  ring->set_state(5, CallState::kDone);
  EXPECT_FALSE(ring->first_launched(through));
  EXPECT_EQ(through, 5u);
  for (size_t i = 0; i < 2 * FlightRing::kSize; ++i) ring->set_state(ring->enter(kGather, ""), CallState::kLaunched);
  EXPECT_EQ(ring->first_launched(through)->seq, ring->entered() - FlightRing::kSize + 1) << "older ones are not there";
}

TEST(FlightRing, ReadersNeverSeeHalfARecord) {
  const auto ring = std::make_unique<FlightRing>();
  std::atomic<bool> done{false};
  Worker reader("reader", [&](std::stop_token) {
    while (!done) {
      uint64_t before = 0;
      for (const auto& record : ring->last(64)) {
        EXPECT_EQ(record.signature.numel(), static_cast<int64_t>(record.seq));
        EXPECT_GT(record.seq, before);
        before = record.seq;
      }
    }
  });
  for (int64_t i = 1; i <= 20000; ++i) {
    const auto seq = ring->enter(CallSignature::of(Op::kAllGather, "f32", std::array<int64_t, 1>{i}), "spin");
    ring->set_state(seq, CallState::kDone);
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace lockstep
