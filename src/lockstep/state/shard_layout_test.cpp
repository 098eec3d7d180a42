#include "lockstep/state/shard_layout.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ShardLayout, PadsToWholeShardsOfWholeLines) {
  const auto layout = ShardLayout::of(100, 3, 64);
  EXPECT_EQ(layout.padded, 192);
  EXPECT_EQ(layout.shard, 64);
  EXPECT_EQ(layout.owned(0), (Range{0, 64}));
  EXPECT_EQ(layout.owned(2), (Range{128, 192}));
  EXPECT_EQ(ShardLayout::of(192, 3, 64).padded, 192) << "nothing to pad";
  EXPECT_EQ(ShardLayout::of(193, 3, 64).padded, 384);
}

TEST(ShardLayout, EveryElementHasOneOwner) {
  for (const int world : {1, 2, 3, 4, 7}) {
    for (const int64_t numel : {1, 63, 64, 65, 1000}) {
      const auto layout = ShardLayout::of(numel, world, 16);
      int64_t covered = 0;
      for (int rank = 0; rank < world; ++rank) covered += intersect(layout.owned(rank), {0, numel}).size();
      EXPECT_EQ(covered, numel) << world << " ranks";
    }
  }
}

TEST(Range, IntersectsAndMoves) {
  EXPECT_EQ(intersect({0, 10}, {5, 20}), (Range{5, 10}));
  EXPECT_TRUE(intersect({0, 5}, {5, 9}).empty());
  EXPECT_TRUE(intersect({8, 9}, {0, 3}).empty());
  EXPECT_EQ(shifted({2, 4}, -2), (Range{0, 2}));
}

}  // namespace
}  // namespace lockstep
