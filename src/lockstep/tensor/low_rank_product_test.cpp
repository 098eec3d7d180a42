// Products with ranks of adapters: against float64, in every dtype and by every path.
#include "lockstep/tensor/low_rank_product.h"

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/packed_product.h"
#include "lockstep/tensor/product.h"
#include "lockstep/tensor/test_numbers.h"

namespace lockstep {
namespace {

Tensor drawn(at::IntArrayRef shape, const char* name, at::ScalarType dtype) {
  return test::drawn(shape, name).to(dtype);
}

Tensor exact_product(const Tensor& a, const Tensor& b) { return a.to(at::kDouble).mm(b.to(at::kDouble)); }

/// Rounded once from a sum in float32, or twice where LibTorch adds what it has rounded.
void expect_near(const Tensor& got, const Tensor& wanted, at::ScalarType dtype) {
  const double step = dtype == at::kBFloat16 ? 0x1p-8 : dtype == at::kHalf ? 0x1p-11 : 5e-6;
  const Tensor apart = got.to(at::kDouble).sub(wanted).abs(), room = wanted.abs().mul(1.5 * step).add(20 * step);
  EXPECT_TRUE(apart.le(room).all().item<bool>()) << at::toString(dtype) << ": off by " << apart.max().item<double>();
}

Tensor over_rows(const Tensor& h, const Tensor& g, double scale, at::ScalarType dtype, bool turned) {
  const int64_t ranks = h.size(0), wide = g.size(1);
  const auto options = g.options().dtype(dtype);
  const Tensor out = turned ? at::empty({wide, ranks}, options).t() : at::empty({ranks, wide}, options);
  fn::over_rows(out, h, g, scale);
  return out;
}

void expect_right(int64_t R, int64_t wide, int64_t ranks, at::ScalarType dtype) {
  SCOPED_TRACE(testing::Message() << R << " rows of " << wide << ", " << ranks << " ranks, " << at::toString(dtype));
  constexpr double kScale = 1.75;
  constexpr int64_t kBeside = 16;  // of a fused matrix: not to be touched
  const Tensor whole = drawn({R, wide + kBeside}, "x", dtype), x = whole.narrow(1, 0, wide);
  const Tensor a = drawn({ranks, wide}, "a", dtype), h = drawn({ranks, R}, "h", dtype);
  const Tensor found = fn::empty_ranks(x, ranks);
  fn::to_ranks(found, x, a, kScale);
  EXPECT_EQ(found.scalar_type(), dtype);
  expect_near(found, exact_product(a, x.t()).mul(kScale), dtype);
  const Tensor over = over_rows(h, x, kScale, at::kFloat, false);
  expect_near(over, exact_product(h, x).mul(kScale), dtype);
  EXPECT_TRUE(over_rows(h, x, kScale, at::kFloat, true).equal(over)) << "where the result lies turned";
  EXPECT_TRUE(over_rows(h, x, kScale, dtype, false).equal(over.to(dtype))) << "of " << at::toString(dtype);
  for (const bool add : {false, true}) {
    const Tensor all = whole.clone(), y = all.narrow(1, 0, wide);
    fn::from_ranks(y, h, a, kScale, add);
    const Tensor sum = exact_product(h.t(), a).mul(kScale);
    expect_near(y, add ? sum.add(x) : sum, dtype);
    EXPECT_TRUE(all.narrow(1, wide, kBeside).equal(whole.narrow(1, wide, kBeside))) << "written beside the result";
  }
  const Tensor turned = h.t().contiguous().t();  // as another product may have left it
  const Tensor of_turned = over_rows(turned, x, kScale, at::kFloat, false);
  // Of many ranks LibTorch's product is taken where the processor multiplies bfloat16, and has other bits where a factor lies
  // otherwise (as is played here on processors that do not).
  constexpr int64_t kFewRanks = 32;
  const bool library = ranks > kFewRanks && dtype == at::kBFloat16 && multiplies_natively(Dtype::kBF16);
  expect_near(of_turned, exact_product(h, x).mul(kScale), dtype);
  EXPECT_TRUE(library || of_turned.equal(over));
}

TEST(LowRankProduct, EqualsFloat64InEveryDtypeAndByEveryPath) {
  for (const bool ours : {true, false}) {
    const PackedProducts packed(ours);
    const NativeProducts native(!ours);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const int64_t ranks : {1, 4, 8, 9, 24, 40}) {
        expect_right(61, 96, ranks, dtype);
        expect_right(400, 1040, ranks, dtype);
        expect_right(37, 77, ranks, dtype);
      }
    }
  }
}

/// Few rows read the other factor where it stands, but for its last columns.
TEST(LowRankProduct, TakesAsMuchMemoryAsItsRehearsal) {
  const PackedProducts packed(true);
  const auto peak = [](const char* device, at::ScalarType dtype, int64_t wide) {
    const auto memory = DeviceMemory::make(device, {.torch_device = device[0] == 'm' ? "meta" : "cpu"});
    const OnDevice scope(memory);
    const auto options = at::TensorOptions().device(memory->torch_device()).dtype(dtype);
    const Tensor x = at::zeros({700, wide}, options), a = at::zeros({8, wide}, options);
    const Tensor h = fn::empty_ranks(x, a.size(0));
    fn::to_ranks(h, x, a, 1.0);
    fn::from_ranks(x, h, a, 1.0, /*add=*/true);
    (void)over_rows(h, x, 2.0, at::kFloat, true);
    return memory->peak_bytes();
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t wide : {640, 333}) EXPECT_EQ(peak("meta", dtype, wide), peak("virtual:1", dtype, wide)) << wide;
  }
}

}  // namespace
}  // namespace lockstep
