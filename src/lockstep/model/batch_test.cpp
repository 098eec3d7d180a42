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

Features row(std::vector<int32_t> ids, std::vector<int32_t> labels = {}, int images = 0) {
  Features made;
  made.input_ids = std::move(ids);
  made.labels = std::move(labels);
  made.sample.where = "train.jsonl:" + std::to_string(made.input_ids.size());
  for (int i = 0; i < images; ++i) made.images.push_back({{1, 1, 2}, {static_cast<float>(i), 7.0F}});
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
  const Batch batch = collate({row({5, 6, 7}), row({8})}, {.pad_token = 2, .left_pad = true});
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
  const Batch right = collate(rows, {.media_token = 9});
  EXPECT_TRUE(right.flow["media_index"].equal(ids_of({0, 1, 6, 7, 8, 9}, {6})));
  EXPECT_EQ(right.flow["pixel_values"].sizes(), at::IntArrayRef({3, 1, 1, 2}));
  EXPECT_EQ(right.flow["pixel_values"][2][0][0][0].item<float>(), 1.0F);
  EXPECT_TRUE(right.has_image);
  const Batch left = collate(rows, {.media_token = 9, .left_pad = true});
  EXPECT_TRUE(left.flow["media_index"].equal(ids_of({2, 3, 6, 7, 8, 9}, {6})));
}

TEST(Collate, ABatchWithoutImagesHasNoMediaSlots) {
  const Batch batch = collate({row({1, 2})}, {.media_token = 9});
  EXPECT_FALSE(batch.flow.has("media_index"));
  EXPECT_FALSE(batch.flow.has("pixel_values"));
  EXPECT_FALSE(batch.has_image);
}

TEST(Collate, NamesTheRowWhosePlaceholdersAndImagesDoNotFit) {
  const auto refusal = [](const std::vector<Features>& rows, int32_t token) -> std::string {
    try {
      collate(rows, {.media_token = token});
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal({row({1, 9, 9, 9}, {}, 2)}, 9).find("train.jsonl:4"), std::string::npos);
  EXPECT_NE(refusal({row({1, 9})}, 9).find("found 1"), std::string::npos);
  EXPECT_NE(refusal({row({1, 2, 3}, {}, 1)}, 9).find("found 0"), std::string::npos);
  EXPECT_NE(refusal({row({1, 2, 3}, {}, 1)}, -1).find("text model"), std::string::npos);
  auto other = row({9}, {}, 1);
  other.images[0].shape = {1, 2, 1};
  EXPECT_NE(refusal({row({9, 1}, {}, 1), other}, 9).find("[1, 2, 1]"), std::string::npos);
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
