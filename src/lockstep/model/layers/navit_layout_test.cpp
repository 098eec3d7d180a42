// Places by the arithmetic that the models were trained with, and slices that do not see one another; the whole tower is held
// by recorded oracles (zoo/oracle_test.cpp).
#include "lockstep/model/layers/navit_layout.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/model/layers/navit_vision.h"
#include "lockstep/model/layers/resampler.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

TEST(TablePlaces, SpreadFewPatchesOverTheTable) {
  EXPECT_EQ(table_places(1, 70), Ints{0});
  EXPECT_EQ(table_places(4, 4), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(table_places(2, 10), (Ints{0, 5}));
  EXPECT_EQ(table_places(6, 3), (Ints{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(table_places(25, 70),
            (Ints{0, 2, 5, 8, 11, 13, 16, 19, 22, 25, 27, 30, 33, 36, 39, 41, 44, 47, 50, 53, 55, 58, 61, 64, 67}));
}

TEST(TablePlaces, Float32DecidesWhereAPatchBeginsAtABorder) {
  // i * 70 / 50 and i * 70 / 77 are whole numbers where the places 6, 13, 20 and 10, 20, 30 begin. Recorded from torch 2.11.
  const Ints fifty = table_places(50, 70), many = table_places(77, 70);
  const auto some = [](const Ints& all, std::initializer_list<size_t> which) {
    Ints out;
    for (const size_t i : which) out.push_back(all[i]);
    return out;
  };
  EXPECT_EQ(some(fifty, {5, 10, 15, 20, 25, 30, 35, 40, 45}), (Ints{6, 13, 20, 27, 35, 41, 49, 55, 63}));
  EXPECT_EQ(some(many, {1, 11, 12, 22, 23, 33, 34, 44, 45, 55, 66, 67, 76}),
            (Ints{0, 10, 10, 20, 20, 30, 30, 40, 40, 49, 60, 60, 69}));
}

TEST(PlaceWaves, AreSinesThenCosinesOfTheSamePlaces) {
  const Tensor waves = place_waves(3, 4);  // frequencies 1 and 0.01
  for (int64_t place = 0; place < 3; ++place) {
    const auto at = static_cast<double>(place);
    EXPECT_NEAR(waves[place][0].item<double>(), std::sin(at), 1e-6);
    EXPECT_NEAR(waves[place][1].item<double>(), std::sin(at * 0.01), 1e-6);
    EXPECT_NEAR(waves[place][2].item<double>(), std::cos(at), 1e-6);
    EXPECT_NEAR(waves[place][3].item<double>(), std::cos(at * 0.01), 1e-6);
  }
}

/// A small tower of one layer with a resampler, and slices through it.
class NavitTest : public testing::Test {
 protected:
  static constexpr int64_t kValues = 12;

  static std::vector<Tensor> tensors_of(const Block& block) {
    std::vector<Tensor> made;
    for (const auto& param : block.params()) {
      Tensor value = empty(param.shape, Dtype::kF32);
      fill_normal(value, 0.3, 5, block.name() + param.local);
      made.push_back(value);
    }
    return made;
  }

  /// [slices, queries, width] of slices by their pixels and grids.
  Tensor media(const std::vector<Tensor>& pixels, const Ints& grids) const {
    Flow flow{{"pixel_values", at::cat(pixels, 0)},
              {"patch_grid", from_values(std::span<const int64_t>(grids), {static_cast<int64_t>(pixels.size()), 2})}};
    for (const Block* block : blocks()) {
      const auto tensors = tensors_of(*block);
      const Flow made = block->forward(Params(block->params(), tensors), flow, {});
      for (const auto& [slot, value] : made.entries()) flow.set(slot, value);
    }
    return flow["media"];
  }
  std::vector<const Block*> blocks() const { return {&layout_, &embeddings_, &layer_, &norm_, &resampler_}; }

  const NavitVisionConfig config_{.hidden = 16, .mlp = 24, .layers = 1, .heads = 2, .image_size = 10, .patch = 2};
  const NavitLayout layout_{"layout", 5, 64};
  const NavitEmbeddings embeddings_{"embeddings", config_};
  const NavitLayer layer_{"layer", config_};
  const NavitNorm norm_{"norm", config_};
  const Resampler resampler_{"resampler", {.vision_hidden = 16, .text_hidden = 128, .queries = 3, .heads = 1}};
};

TEST_F(NavitTest, WhatASliceGivesDoesNotDependOnItsNeighbours) {
  const Tensor wide = at::randn({14, kValues}), square = at::randn({9, kValues}), other = at::randn({9, kValues});
  const Tensor together = media({wide, square, other, wide}, {2, 7, 3, 3, 3, 3, 2, 7});
  ASSERT_EQ(together.sizes(), at::IntArrayRef({4, 3, 128}));
  const Tensor alone[] = {media({wide}, {2, 7}), media({square}, {3, 3}), media({other}, {3, 3}),
                          media({wide}, {2, 7})};
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(together[i].allclose(alone[i][0], 1e-5, 1e-5)) << i;
  EXPECT_FALSE(together[1].allclose(together[2], 1e-2, 1e-2));
}

TEST_F(NavitTest, WhereAPatchStandsCounts) {
  const Tensor pixels = at::randn({14, kValues});
  EXPECT_FALSE(media({pixels}, {2, 7}).allclose(media({pixels}, {7, 2}), 1e-3, 1e-3));
}

}  // namespace
}  // namespace lockstep
