// Products of a few rows, as a CPU that multiplies pairs of bfloat16 makes them, and as one that does not.
#include "lockstep/tensor/few_rows_product.h"

#include <map>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/packed_product.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

struct Kind {
  const char* name;
  at::ScalarType dtype;
  bool native;  // as far as this processor is; elsewhere LibTorch's product is held to the same
};

class FewRowsProduct : public testing::TestWithParam<Kind> {
 protected:
  FewRowsProduct() {
    if (!GetParam().native) none_.emplace(false);
  }
  Tensor random(at::IntArrayRef shape, const char* salt) const {
    Tensor made = at::zeros(shape, at::kFloat);
    fill_normal(made, 1.0, 5, salt);
    return made.to(GetParam().dtype);
  }

 private:
  PairedProducts pairs_{true};
  PackedProducts packed_{true};
  std::optional<NativeProducts> none_;
};

TEST_P(FewRowsProduct, IsTheExactOneRoundedOnceForAnyNumberOfRows) {
  const std::map<at::ScalarType, double> half_units{
      {at::kFloat, 0x1p-24}, {at::kBFloat16, 0x1p-8}, {at::kHalf, 0x1p-11}};
  const double half_unit = half_units.at(GetParam().dtype);
  for (const int64_t depth : {1, 2, 31, 96, 770, 1602}) {
    for (const int64_t outputs : {1, 15, 99, 200}) {
      const Tensor all = random({66, depth}, "x"), w = random({outputs, depth}, "w"), b = random({outputs}, "b");
      const Tensor exact = at::linear(all.to(at::kDouble), w.to(at::kDouble), b.to(at::kDouble));
      const Tensor together = fn::linear(all.narrow(0, 0, 64), w, b);
      for (int64_t rows = 1; rows <= 66; rows += rows < 20 ? 1 : 7) {
        SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << outputs);
        const Tensor x = all.narrow(0, 0, rows), got = fn::linear(x, w, b);
        const Tensor wrong = got.to(at::kDouble).sub(exact.narrow(0, 0, rows)).abs();
        const Tensor bound =
            exact.narrow(0, 0, rows).abs().mul(half_unit * 1.001).add(4e-7 * static_cast<double>(depth));
        EXPECT_LE(wrong.sub(bound).max().item<double>(), 0.0);
        EXPECT_TRUE(!fn::multiplies_few_rows(x, rows) || got.equal(together.narrow(0, 0, rows))) << "other neighbours";
        const Tensor wider = at::full({rows, outputs + 3}, 7.0F, x.options());
        fn::product_into(wider.narrow(1, 0, outputs), x, w.t());
        EXPECT_TRUE(wider.narrow(1, 0, outputs).equal(fn::linear(x, w)));
        EXPECT_TRUE(wider.narrow(1, outputs, 3).eq(7).all().item<bool>()) << "written beside the result";
      }
    }
  }
}

TEST_P(FewRowsProduct, ReadsRowsThatStandApart) {
  const Tensor x = random({9, 3, 64}, "x").select(1, 1), w = random({40, 100}, "w").narrow(1, 7, 64);
  EXPECT_TRUE(fn::linear(x, w).equal(fn::linear(x.contiguous(), w.contiguous())));
}

TEST_P(FewRowsProduct, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = random({20, 300}, "x"), w = random({700, 300}, "w");
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = fn::linear(x, w);
  at::set_num_threads(3);
  EXPECT_TRUE(fn::linear(x, w).equal(one));
  at::set_num_threads(before);
}

TEST_P(FewRowsProduct, IsNotOfOneRowOrMany) {
  const Tensor x = random({4, 64}, "x");
  for (const int64_t rows : {0, 1, 65}) EXPECT_FALSE(fn::multiplies_few_rows(x, rows)) << rows;
  const bool any_depth = x.scalar_type() == at::kFloat || fn::widens(x);
  EXPECT_EQ(fn::multiplies_few_rows(random({4, 63}, "x"), 4), any_depth) << "no whole pairs";
}

INSTANTIATE_TEST_SUITE_P(Kinds, FewRowsProduct,
                         testing::Values(Kind{"native", at::kBFloat16, true}, Kind{"widened", at::kBFloat16, false},
                                         Kind{"half", at::kHalf, false}, Kind{"float32", at::kFloat, true}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace lockstep
