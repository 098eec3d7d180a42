#include "lockstep/tensor/finite.h"

#include <limits>

#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

TEST(AllFinite, FindsOneWildNumberAnywhere) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
    for (const int64_t size : {0, 1, 7, 16, 1000}) {
      const Tensor x = full({size}, dtype == Dtype::kF16 ? 65504 : 3e38, dtype);
      EXPECT_TRUE(all_finite(x)) << dtype_name(dtype);
      EXPECT_TRUE(all_finite(x.neg()));
      for (const double wild : {inf, -inf, nan}) {
        for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
          if (size == 0) continue;
          Tensor spoilt = x.clone();
          spoilt.narrow(0, at, 1).fill_(wild);
          EXPECT_FALSE(all_finite(spoilt)) << dtype_name(dtype) << " " << size << " " << at << " " << wild;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
