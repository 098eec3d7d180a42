// Rows of several lengths side by side: padding, labels, positions, masks, media.
#include "lockstep/model/batch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int32_t kPlaceholder = 9;

Features row(std::vector<int32_t> ids, std::vector<int32_t> labels = {}, int images = 0) {
  Features made;
  made.input_ids = std::move(ids);
  made.labels = std::move(labels);
  made.sample.where = "train.jsonl:" + std::to_string(made.input_ids.size());
  for (int i = 0; i < images; ++i) made.media.push_back({{1, 1, 2}, {static_cast<float>(i), 7.0F}, {}});
  for (size_t i = 0; i < made.input_ids.size(); ++i) {
    if (made.input_ids[i] == kPlaceholder) made.media_index.push_back(static_cast<int32_t>(i));
  }
  return made;
}

Tensor ids_of(std::vector<int64_t> values, const Shape& shape) {
  return from_values(std::span<const int64_t>(values), shape);
}

TEST(Collate, PadsOnTheRightAndCountsTargetsAfterTheShift) {
  const Batch batch = collate({row({5, 6, 7}, {5, -100, 7}), row({8}, {8})}, {.pad_token = 2});
  EXPECT_TRUE(batch.flow["input_ids"].equal(ids_of({5, 6, 7, 8, 2, 2}, {2, 3})));
  EXPECT_TRUE(batch.flow["labels"].equal(ids_of({5, -100, 7, 8, -100, -100}, {2, 3})));
  EXPECT_EQ(batch.target_tokens, 1);  // a label at the first place is nobody's target
  EXPECT_EQ(batch.input_tokens, 4);
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{3, 1}));
  EXPECT_FALSE(batch.flow.has("mask"));
  EXPECT_FALSE(batch.flow.has("positions"));
}

TEST(Collate, PadsOnTheLeftForGenerationWithPositionsAndMask) {
  const Batch batch = collate({row({5, 6, 7}), row({8})}, {.pad_token = 2, .layout = RowLayout::kLeftPadded});
  EXPECT_TRUE(batch.flow["input_ids"].equal(ids_of({5, 6, 7, 2, 2, 8}, {2, 3})));
  EXPECT_TRUE(batch.flow["positions"].equal(ids_of({0, 1, 2, 0, 0, 0}, {2, 3})));
  const Tensor mask = batch.flow["mask"];
  EXPECT_EQ(mask.sizes(), at::IntArrayRef({2, 1, 3, 3}));
  EXPECT_TRUE(mask[0][0].to(at::kLong).equal(ids_of({1, 0, 0, 1, 1, 0, 1, 1, 1}, {3, 3})));
  EXPECT_TRUE(mask[1][0].to(at::kLong).equal(ids_of({0, 0, 0, 0, 0, 0, 0, 0, 1}, {3, 3})));
  EXPECT_FALSE(batch.flow.has("labels"));
}

TEST(Collate, FindsPlaceholdersWhereverPaddingMovesThem) {
  const std::vector<Features> rows{row({9, 9, 1}, {}, 1), row({1, 9, 9, 9, 9}, {}, 2), row({3}, {})};
  const Batch right = collate(rows, {});
  EXPECT_TRUE(right.flow["media_index"].equal(ids_of({0, 1, 6, 7, 8, 9}, {6})));
  EXPECT_EQ(right.flow["pixel_values"].sizes(), at::IntArrayRef({3, 1, 2}));
  EXPECT_EQ(right.flow["pixel_values"][2][0][0].item<float>(), 1.0F);
  EXPECT_TRUE(right.has_image);
  const Batch left = collate(rows, {.layout = RowLayout::kLeftPadded});
  EXPECT_TRUE(left.flow["media_index"].equal(ids_of({2, 3, 6, 7, 8, 9}, {6})));
}

TEST(Collate, ABatchWithoutImagesHasNoMediaSlots) {
  const Batch batch = collate({row({1, 2})}, {});
  EXPECT_FALSE(batch.flow.has("media_index"));
  EXPECT_FALSE(batch.flow.has("pixel_values"));
  EXPECT_FALSE(batch.has_image);
}

TEST(Collate, MediaOfSeveralSizesLieBehindOneAnotherWithTheirFacts) {
  auto one = row({9, 1}, {}, 1), two = row({9, 2}, {}, 1);
  one.media[0] = {.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}, .facts = {{"grid_thw", {1, 2, 1}}}};
  two.media[0] = {.shape = {1, 3}, .values = {7, 8, 9}, .facts = {{"grid_thw", {1, 1, 1}}}};
  const Batch batch = collate({one, two}, {});
  EXPECT_TRUE(batch.flow["pixel_values"].equal(at::tensor({1.F, 2.F, 3.F, 4.F, 5.F, 6.F, 7.F, 8.F, 9.F}).view({3, 3})));
  EXPECT_TRUE(batch.flow["grid_thw"].equal(ids_of({1, 2, 1, 1, 1, 1}, {2, 3})));
}

TEST(Collate, PositionsOfSeveralAxesMoveWithThePadding) {
  auto placed = row({9, 9, 1}, {}, 1);
  placed.positions = {0, 0, 2, 0, 1, 2};  // two axes
  const Batch left = collate({placed, row({1, 2, 3, 4})}, {.layout = RowLayout::kLeftPadded});
  EXPECT_TRUE(left.flow["positions"].equal(ids_of({0, 0, 0, 2, 0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 2, 3}, {2, 2, 4})));
  EXPECT_EQ(left.next_positions, (std::vector<int64_t>{3, 4}));
  const Batch right = collate({placed}, {});
  EXPECT_TRUE(right.flow["positions"].equal(ids_of({0, 0, 2, 0, 1, 2}, {2, 1, 3})));
  EXPECT_FALSE(collate({row({1, 2})}, {}).flow.has("positions"));
}

TEST(Collate, RefusesMediaThatDoNotFitAndFeaturesThatContradictThemselves) {
  auto other = row({9}, {}, 1);
  other.media[0].shape = {1, 2, 1};
  try {
    collate({row({9, 1}, {}, 1), other}, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("train.jsonl:1: image prepared as [1, 2, 1]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(collate({row({1, 9})}, {}), InternalError);            // a placeholder and nothing for it
  EXPECT_THROW(collate({row({1, 2, 3}, {}, 1)}, {}), InternalError);  // an image and no placeholder
}

TEST(Collate, NoRowsGiveAnEmptyBatch) {
  const Batch batch = collate({}, {});
  EXPECT_TRUE(batch.flow.entries().empty());
  EXPECT_EQ(batch.rows, 0);
}

TEST(KvCache, ReturnsAllTokensSoFarAndGrowsBeyondItsCapacity) {
  KvCache cache(2, 3);
  const auto tokens = [](int64_t from, int64_t count) {
    Tensor made = zeros({2, 1, count, 1}, Dtype::kF32);
    for (int64_t i = 0; i < count; ++i) made.select(2, i).fill_(static_cast<double>(from + i));
    return made;
  };
  cache.append(0, tokens(0, 2), tokens(10, 2));
  const auto [k, v] = cache.append(0, tokens(2, 3), tokens(12, 3));
  EXPECT_TRUE(k[1].flatten().equal(at::tensor({0.0F, 1.0F, 2.0F, 3.0F, 4.0F})));
  EXPECT_TRUE(v[0].flatten().equal(at::tensor({10.0F, 11.0F, 12.0F, 13.0F, 14.0F})));
  EXPECT_EQ(cache.length(), 5);
  EXPECT_THROW(cache.append(2, tokens(0, 1), tokens(0, 1)), InternalError);
}

TEST(KvCache, KeepsRowsInTheGivenOrder) {
  KvCache cache(1, 4);
  Tensor k = zeros({3, 1, 1, 1}, Dtype::kF32);
  for (int64_t r = 0; r < 3; ++r) k.select(0, r).fill_(static_cast<double>(r));
  cache.append(0, k, k);
  cache.keep_rows(at::tensor({2, 0}, at::kLong));
  const auto [keys, values] = cache.append(0, k.narrow(0, 0, 2), k.narrow(0, 0, 2));
  EXPECT_TRUE(keys.flatten().equal(at::tensor({2.0F, 0.0F, 0.0F, 1.0F})));
}

}  // namespace
}  // namespace lockstep
