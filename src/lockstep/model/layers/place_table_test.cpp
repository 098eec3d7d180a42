#include "lockstep/model/layers/place_table.h"

#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

TEST(BicubicWeights, SumToOneAndKeepWhatIsAlreadyOfTheSize) {
  for (const bool smooth : {false, true}) {
    EXPECT_EQ(bicubic_weights(3, 3, smooth), (std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
    for (const auto& [from, to] : std::vector<std::pair<int64_t, int64_t>>{{2, 5}, {7, 3}, {1, 4}, {16, 32}}) {
      const auto weights = bicubic_weights(from, to, smooth);
      for (int64_t row = 0; row < to; ++row) {
        float sum = 0;
        for (int64_t at = 0; at < from; ++at) sum += weights[static_cast<size_t>(row * from + at)];
        EXPECT_NEAR(sum, 1.0F, 1e-6F) << from << " to " << to;
      }
    }
  }
}

TEST(ResizedTable, IsWhatTorchInterpolatesAndLeavesTheClassTokenAlone) {
  constexpr int64_t kWidth = 5;
  for (const auto& [from, to] : std::vector<std::pair<int64_t, int64_t>>{{4, 6}, {8, 3}, {16, 32}, {3, 1}}) {
    const Tensor table = at::randn({1, 1 + from * from, kWidth});
    const auto weights = bicubic_weights(from, to, /*smooth=*/false);
    const Tensor found = resized_table(table, from_values(std::span<const float>(weights), {to, from}));
    const Tensor grid = table.narrow(1, 1, from * from).reshape({1, from, from, kWidth}).permute({0, 3, 1, 2});
    const Tensor torchs = at::upsample_bicubic2d(grid, {to, to}, /*align_corners=*/false);
    EXPECT_TRUE(found.narrow(1, 1, to * to).allclose(torchs.flatten(2).transpose(1, 2), 1e-5, 1e-5)) << from << to;
    EXPECT_TRUE(found.narrow(1, 0, 1).equal(table.narrow(1, 0, 1)));
  }
}

}  // namespace
}  // namespace lockstep
