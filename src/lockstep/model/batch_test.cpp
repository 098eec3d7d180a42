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
  std::vector<int32_t> places;
  for (size_t i = 0; i < made.input_ids.size(); ++i) {
    if (made.input_ids[i] == kPlaceholder) places.push_back(static_cast<int32_t>(i));
  }
  for (int i = 0; i < images; ++i) {
    MediaBlock& block = made.media.emplace_back();
    block.shape = {1, 1, 2};
    block.values = {static_cast<float>(i), 7.0F};
    const auto each = static_cast<std::ptrdiff_t>(places.size()) / images;
    block.places.assign(places.begin() + i * each, places.begin() + (i + 1) * each);
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
  EXPECT_TRUE(right.flow["pixel_index"].equal(ids_of({0, 1, 6, 7, 8, 9}, {6})));
  EXPECT_EQ(right.flow["pixel_values"].sizes(), at::IntArrayRef({3, 1, 2}));
  EXPECT_EQ(right.flow["pixel_values"][2][0][0].item<float>(), 1.0F);
  EXPECT_EQ(right.modalities, (Modalities{Modality::kText, Modality::kImage}));
  const Batch left = collate(rows, {.layout = RowLayout::kLeftPadded});
  EXPECT_TRUE(left.flow["pixel_index"].equal(ids_of({2, 3, 6, 7, 8, 9}, {6})));
}

TEST(Collate, ABatchWithoutImagesHasNoMediaSlots) {
  const Batch batch = collate({row({1, 2})}, {});
  EXPECT_FALSE(batch.flow.has("pixel_index"));
  EXPECT_FALSE(batch.flow.has("pixel_values"));
  EXPECT_EQ(batch.modalities, Modality::kText);
}

TEST(Collate, MediaOfSeveralSizesLieBehindOneAnotherWithTheirFacts) {
  auto one = row({9, 1}, {}, 1), two = row({9, 2}, {}, 1);
  one.media[0] = {.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}, .facts = {{"grid_thw", {1, 2, 1}}}, .places = {0}};
  two.media[0] = {.shape = {1, 3}, .values = {7, 8, 9}, .facts = {{"grid_thw", {1, 1, 1}}}, .places = {0}};
  const Batch batch = collate({one, two}, {});
  EXPECT_TRUE(batch.flow["pixel_values"].equal(at::tensor({1.F, 2.F, 3.F, 4.F, 5.F, 6.F, 7.F, 8.F, 9.F}).view({3, 3})));
  EXPECT_TRUE(batch.flow["grid_thw"].equal(ids_of({1, 2, 1, 1, 1, 1}, {2, 3})));
}

TEST(Collate, MediaOfEachSlotStandByThemselvesWhereverTheyInterleave) {
  const auto sound = [](std::vector<int32_t> places, float value) {
    return MediaBlock{.modality = Modality::kAudio,
                      .slot = "audio",
                      .shape = {1, 2},
                      .values = {value, value},
                      .facts = {{"audio_frames", {2}}},
                      .places = std::move(places)};
  };
  auto one = row({9, 8, 9, 8}, {}, 1), two = row({8, 1}, {}, 0);
  one.media.push_back(sound({1, 3}, 3));  // between the picture's two places
  two.media.push_back(sound({0}, 5));
  const Batch batch = collate({one, two}, {});
  EXPECT_TRUE(batch.flow["pixel_index"].equal(ids_of({0, 2}, {2})));
  EXPECT_TRUE(batch.flow["audio_index"].equal(ids_of({1, 3, 4}, {3})));
  EXPECT_TRUE(batch.flow["audio_values"].equal(at::tensor({3.F, 3.F, 5.F, 5.F}).view({2, 2})));
  EXPECT_TRUE(batch.flow["audio_frames"].equal(ids_of({2, 2}, {2, 1})));
  EXPECT_EQ(batch.modalities, (Modalities{Modality::kText, Modality::kImage, Modality::kAudio}));
}

TEST(Collate, MediaWithoutValuesKeepTheirShapeAlone) {
  Features first = row({9, 1}, {}, 1), second = row({9, 2}, {}, 1);
  for (auto* one : {&first, &second}) one->media[0].values.clear();
  const Batch batch = collate({first, second}, {});
  EXPECT_EQ(shape_of(batch.flow["pixel_values"]), (Shape{2, 1, 2}));
  EXPECT_TRUE(batch.flow["pixel_values"].is_meta());
  second = row({9, 2}, {}, 1);
  EXPECT_THROW(collate({first, second}, {}), InternalError);
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
  EXPECT_THROW(collate({row({1, 2, 3}, {}, 1)}, {}), InternalError);  // an image and no placeholder
  other = row({9}, {}, 1);
  other.media[0].places = {1};
  EXPECT_THROW(collate({other}, {}), InternalError);  // a place behind the row's tokens
}

TEST(Collate, NoRowsGiveAnEmptyBatch) {
  const Batch batch = collate({}, {});
  EXPECT_TRUE(batch.flow.entries().empty());
  EXPECT_EQ(batch.rows, 0);
}

TEST(Collate, PacksRowsBehindOneAnotherAndNoTargetCrossesFromRowToRow) {
  auto placed = row({9, 9, 1}, {-100, 9, 1}, 1);
  const std::vector<Features> rows{row({5, 6}, {5, 6}), placed, row({8}, {8})};
  const Batch batch = collate(rows, {.pad_token = 2, .layout = RowLayout::kPacked});
  EXPECT_TRUE(batch.flow["input_ids"].equal(ids_of({5, 6, 9, 9, 1, 8}, {1, 6})));
  EXPECT_TRUE(batch.flow["labels"].equal(ids_of({-100, 6, -100, 9, 1, -100}, {1, 6})));
  EXPECT_TRUE(batch.flow["positions"].equal(ids_of({0, 1, 0, 1, 2, 0}, {1, 6})));
  EXPECT_TRUE(batch.flow["row_ends"].equal(ids_of({2, 5, 6}, {3})));
  EXPECT_TRUE(batch.flow["pixel_index"].equal(ids_of({2, 3}, {2})));
  EXPECT_EQ(batch.target_tokens, collate(rows, {}).target_tokens);
  placed.positions = {0, 0, 2, 0, 1, 2};  // two axes
  const Batch axes = collate({row({5, 6}), placed}, {.layout = RowLayout::kPacked});
  EXPECT_TRUE(axes.flow["positions"].equal(ids_of({0, 1, 0, 0, 2, 0, 1, 0, 1, 2}, {2, 1, 5})));
}

/// One layer, one head of size 1: a query of 0 looks at all tokens alike, so it gets the mean of their values.
class OneHead {
 public:
  explicit OneHead(int64_t slots) : cache(1, slots) {}
  void prompt(int64_t slot, std::vector<float> values) {
    cache.open(slot, 2);  // grows on the way
    const Tensor v = from_values(std::span<const float>(values), {1, 1, static_cast<int64_t>(values.size()), 1});
    cache.write(0, slot, v, v);
    cache.start(slot);
  }
  /// All that a slot holds when these stand behind it.
  std::vector<float> write(int64_t slot, std::vector<float> values) {
    const Tensor v = from_values(std::span<const float>(values), {1, 1, static_cast<int64_t>(values.size()), 1});
    const Tensor all = cache.write(0, slot, v, v).second.contiguous();
    return {all.const_data_ptr<float>(), all.const_data_ptr<float>() + all.numel()};
  }
  /// The means after one more value for each slot.
  std::vector<float> step(std::vector<float> values) {
    const Tensor v = from_values(std::span<const float>(values), {cache.slots(), 1, 1, 1});
    const Tensor out = cache.step(0, zeros({cache.slots(), 1, 1, 1}, Dtype::kF32), v, v).flatten();
    return {out.const_data_ptr<float>(), out.const_data_ptr<float>() + out.numel()};
  }
  KvCache cache;
};

TEST(KvCache, EverySlotHasItsOwnLengthAndGrowsBeyondItsCapacity) {
  OneHead rows(3);
  rows.prompt(0, {1, 2, 3});
  rows.prompt(2, {10});
  EXPECT_EQ(rows.step({6, 99, 30}), (std::vector<float>{3, 0, 20}));  // slot 1 is free
  EXPECT_EQ(rows.step({8, 99, 50}), (std::vector<float>{4, 0, 30}));
}

TEST(KvCache, ARowThatEndsLeavesItsSlotEmptyForTheNext) {
  OneHead rows(2);
  rows.prompt(0, {1, 2, 3});
  rows.prompt(1, {4});
  EXPECT_THROW(rows.cache.open(1, 4), InternalError);  // taken
  rows.cache.close(1);
  EXPECT_EQ(rows.step({2, 99}), (std::vector<float>{2, 0}));
  rows.prompt(1, {7, 9});
  EXPECT_EQ(rows.step({2, 5}), (std::vector<float>{2, 7}));
}

TEST(KvCache, APromptIsReadInPiecesAndStartsWhenItIsRead) {
  OneHead rows(2);
  rows.prompt(0, {5});
  rows.cache.open(1, 2);
  EXPECT_EQ(rows.write(1, {1, 2}), (std::vector<float>{1, 2}));
  EXPECT_EQ(rows.step({7, 99}), (std::vector<float>{6, 0})) << "has not started";
  EXPECT_EQ(rows.write(1, {3}), (std::vector<float>{1, 2, 3}));
  rows.cache.start(1);
  EXPECT_EQ(rows.step({6, 6}), (std::vector<float>{6, 3}));
}

TEST(KvCache, ARowBeginsWithTheFirstTokensOfAnotherOrOfWhoStoodThereBefore) {
  OneHead rows(2);
  rows.prompt(0, {1, 2, 3});
  rows.step({4, 0});
  rows.cache.open(1, 4);
  rows.cache.begin_as(1, 0, 2);
  EXPECT_EQ(rows.write(1, {9}), (std::vector<float>{1, 2, 9}));
  rows.cache.close(0);
  rows.cache.open(0, 4, /*kept=*/3);
  EXPECT_EQ(rows.write(0, {8, 8}), (std::vector<float>{1, 2, 3, 8, 8}));
  EXPECT_EQ(rows.write(1, {7}), (std::vector<float>{1, 2, 9, 7})) << "a copy of its own";
  rows.cache.close(1);
  EXPECT_THROW(rows.cache.open(1, 4, /*kept=*/5), InternalError);
}

TEST(KvCache, ARowMayBeginAsOneThatItselfBeginsAnewInTheSamePass) {
  OneHead rows(3);
  rows.prompt(1, {1, 2, 3});
  rows.prompt(2, {1, 2, 9});
  rows.cache.close(1);
  rows.cache.open(1, 8, /*kept=*/2);
  rows.cache.open(0, 8);
  rows.cache.begin_as(0, 1, 2);  // of what is kept there
  rows.cache.begin_as(1, 2, 3);
  EXPECT_EQ(rows.write(0, {7}), (std::vector<float>{1, 2, 7}));
  EXPECT_EQ(rows.write(1, {8}), (std::vector<float>{1, 2, 9, 8}));
  EXPECT_EQ(rows.write(1, {6}), (std::vector<float>{1, 2, 9, 8, 6}));
}

TEST(KvCache, RefusesLayersAndSlotsThatItWasNotMadeFor) {
  OneHead rows(1);
  rows.prompt(0, {1});
  const Tensor one = zeros({1, 1, 1, 1}, Dtype::kF32);
  EXPECT_THROW(rows.cache.write(1, 0, one, one), InternalError);
  EXPECT_ANY_THROW(rows.cache.write(0, 1, one, one));
}

}  // namespace
}  // namespace lockstep
