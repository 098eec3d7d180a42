#include "lockstep/comm/flight_ring.h"

#include <atomic>
#include <memory>

#include <gtest/gtest.h>

#include "lockstep/base/worker.h"

namespace lockstep {
namespace {

const CallSignature kGather{.op = Op::kAllGather, .dtype = Dtype::kBF16, .numel = 4096};

TEST(CallSignature, DescribesTheCall) {
  EXPECT_EQ(kGather.describe(), "all_gather bf16[4096]");
  EXPECT_EQ((CallSignature{.op = Op::kBroadcast, .dtype = Dtype::kI64, .numel = 1, .root = 2}.describe()),
            "broadcast i64[1] from rank 2");
  EXPECT_EQ(CallSignature{.op = Op::kBarrier}.describe(), "barrier");
}

TEST(CallSignature, HashesEveryField) {
  for (const CallSignature other :
       {CallSignature{.op = Op::kReduceScatter, .dtype = Dtype::kBF16, .numel = 4096},
        CallSignature{.op = Op::kAllGather, .dtype = Dtype::kF32, .numel = 4096},
        CallSignature{.op = Op::kAllGather, .dtype = Dtype::kBF16, .numel = 4095},
        CallSignature{.op = Op::kAllGather, .dtype = Dtype::kBF16, .numel = 4096, .root = 0}}) {
    EXPECT_NE(other.hash(), kGather.hash()) << other.describe();
  }
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
  EXPECT_EQ(records[0].describe(), "#1 all_gather bf16[4096] (text.layers.7 gather): launched for 0.0s now");
  EXPECT_EQ(records[1].describe(), "#2 all_gather bf16[4096] (" + std::string(63, 'x') + "): done in 0.0s");
}

TEST(FlightRing, FingerprintIsAFunctionOfTheSequence) {
  const auto one = std::make_unique<FlightRing>(), other = std::make_unique<FlightRing>();
  const CallSignature reduce{.op = Op::kReduceScatter, .numel = 8};
  one->enter(kGather, "a");
  one->enter(reduce, "b");
  other->enter(kGather, "other labels do not matter");
  EXPECT_NE(one->fingerprint(), other->fingerprint());
  other->enter(reduce, "b");
  EXPECT_EQ(one->fingerprint(), other->fingerprint());
  const auto swapped = std::make_unique<FlightRing>();
  swapped->enter(reduce, "b");
  swapped->enter(kGather, "a");
  EXPECT_NE(swapped->fingerprint(), one->fingerprint());
}

TEST(FlightRing, ReadersNeverSeeHalfARecord) {
  const auto ring = std::make_unique<FlightRing>();
  std::atomic<bool> done{false};
  Worker reader("reader", [&](std::stop_token) {
    while (!done) {
      uint64_t before = 0;
      for (const auto& record : ring->last(64)) {
        EXPECT_EQ(record.signature.numel, static_cast<int64_t>(record.seq));
        EXPECT_GT(record.seq, before);
        before = record.seq;
      }
    }
  });
  for (int64_t i = 1; i <= 20000; ++i) {
    const auto seq = ring->enter({.op = Op::kAllGather, .numel = i}, "spin");
    ring->set_state(seq, CallState::kDone);
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace lockstep
