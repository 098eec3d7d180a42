#include "lockstep/state/sum_of_squares.h"

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// Numbers of which a float32 sum would lose most: it stands still once it is 2^24 times as large as what is added.
at::Tensor many(int64_t count) {
  const at::Tensor x = at::empty({count}, at::kFloat);
  auto* numbers = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) numbers[i] = 1e-3F * static_cast<float>(i % 7 + 1);
  return x;
}

TEST(SumOfSquares, LosesNothingOfManyNumbers) {
  for (const int64_t count : {0, 1, 7, 8, 262143, 262145, 40'000'000}) {
    const at::Tensor x = many(count);
    long double expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      expected += static_cast<long double>(x.const_data_ptr<float>()[i]) * x.const_data_ptr<float>()[i];
    }
    const double found = sum_of_squares(x).item<double>();
    EXPECT_NEAR(found, static_cast<double>(expected), 1e-12 * static_cast<double>(expected)) << count;
  }
}

TEST(SumOfSquares, HasTheSameBitsOnAnyNumberOfThreads) {
  const at::Tensor x = many(3'000'001);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = sum_of_squares(x).item<double>();
  at::set_num_threads(3);
  EXPECT_EQ(sum_of_squares(x).item<double>(), alone);
  at::set_num_threads(before);
}

TEST(SumOfSquares, ShowsWhatIsNotFinite) {
  at::Tensor x = many(100);
  x.fill_(3e19F);  // beyond float32 when it is squared
  EXPECT_EQ(sum_of_squares(x).item<double>(), std::numeric_limits<double>::infinity());
  x.fill_(1);
  x.mutable_data_ptr<float>()[99] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_of_squares(x).item<double>()));
}

TEST(SumOfSquares, TakesOtherDtypes) {
  EXPECT_NEAR(sum_of_squares(at::full({1000}, 2.0, at::kBFloat16)).item<double>(), 4000, 32);
}

}  // namespace
}  // namespace lockstep
