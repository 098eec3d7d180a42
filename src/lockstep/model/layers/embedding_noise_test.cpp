#include "lockstep/model/layers/embedding_noise.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kNumbers = 64;

TEST(EmbeddingNoise, IsUniformOfTheRowsOwnSizeAndARowsOwn) {
  const EmbeddingNoise noise{.alpha = 5, .keys = {1, 2}, .lengths = {30, 50}};
  const Tensor padded = with_noise(zeros({2, 50, kNumbers}, Dtype::kF32), noise);
  const Tensor packed = with_noise(zeros({1, 80, kNumbers}, Dtype::kF32), noise);
  EXPECT_TRUE(padded[0].narrow(0, 0, 30).equal(packed[0].narrow(0, 0, 30)));
  EXPECT_TRUE(padded[1].equal(packed[0].narrow(0, 30, 50)));
  EXPECT_EQ(padded[0].narrow(0, 30, 20).abs().max().item<float>(), 0.0F) << "padding stays as it is";
  for (size_t row = 0; row < 2; ++row) {
    const Tensor own = padded[static_cast<int64_t>(row)].narrow(0, 0, noise.lengths[row]);
    const double most = 5 / std::sqrt(static_cast<double>(noise.lengths[row] * kNumbers));
    EXPECT_LE(own.abs().max().item<double>(), most);
    EXPECT_GT(own.abs().max().item<double>(), 0.99 * most);
    EXPECT_NEAR(own.mean().item<double>(), 0.0, 0.05 * most);
    EXPECT_NEAR(own.pow(2).mean().item<double>(), most * most / 3, 0.03 * most * most) << "of a uniform distribution";
  }
}

}  // namespace
}  // namespace lockstep
