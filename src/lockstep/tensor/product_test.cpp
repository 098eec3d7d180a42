// Products of 16-bit matrices against float64, on a CPU that multiplies them by itself and as on one that does not.
#include "lockstep/tensor/product.h"

#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/packed_product.h"

namespace lockstep {
namespace {

Tensor random(at::IntArrayRef shape, uint64_t salt, at::ScalarType dtype) {
  Tensor made = at::zeros(shape, at::kFloat);
  fill_normal(made, 1.0, 11, "product" + std::to_string(salt));
  return made.to(dtype);
}

/// Half a unit in the last place of a number in [1, 2).
double half_unit(at::ScalarType dtype) { return dtype == at::kHalf ? 0x1p-11 : 0x1p-8; }

/// Entry by entry: what is exact, rounded once, and the rounding of float32 on the way over `depth` terms.
void expect_rounded_once(const Tensor& got, const Tensor& exact, int64_t depth) {
  const double sums = 4e-7 * static_cast<double>(depth);
  const Tensor bound = exact.abs().mul(half_unit(got.scalar_type()) * 1.001).add(sums + 1e-7);
  const Tensor over = got.to(at::kDouble).sub(exact).abs().sub(bound);
  EXPECT_LE(over.max().item<double>(), 0.0) << at::toString(got.scalar_type());
}

TEST(Product, IsRoundedOnceWhateverItsSizesAndLayouts) {
  const NativeProducts none(false);
  const at::NoGradGuard quiet;
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    // Few rows, one tile, and one more than a tile in each direction.
    for (const auto& [m, k, n] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1},
                                                                                    {1, 100, 37},
                                                                                    {3, 17, 5},
                                                                                    {32, 64, 48},
                                                                                    {33, 64, 48},
                                                                                    {40, 2049, 33},
                                                                                    {513, 20, 70},
                                                                                    {35, 40, 1025}}) {
      for (const bool turn_a : {false, true}) {
        for (const bool turn_b : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << m << " x " << k << " x " << n << (turn_a ? " a^T" : "") << (turn_b ? " b^T" : ""));
          const Tensor a = turn_a ? random({k, m}, 1, dtype).t() : random({m, k}, 1, dtype);
          const Tensor b = turn_b ? random({n, k}, 2, dtype).t() : random({k, n}, 2, dtype);
          const Tensor exact = a.to(at::kDouble).matmul(b.to(at::kDouble));
          expect_rounded_once(fn::product(a, b), exact, k);
          const Tensor wider = at::zeros({m, n + 3}, a.options());
          fn::product_into(wider.narrow(1, 0, n), a, b);
          EXPECT_TRUE(wider.narrow(1, 0, n).equal(fn::product(a, b)));
          EXPECT_EQ(wider.narrow(1, n, 3).abs().max().item<double>(), 0.0) << "written beside the result";
        }
      }
    }
  }
}

TEST(Product, OfNoRowsIsEmpty) {
  const NativeProducts none(false);
  const Tensor b = random({8, 5}, 2, at::kBFloat16);
  EXPECT_EQ(fn::product(random({0, 8}, 1, at::kBFloat16), b).sizes(), at::IntArrayRef({0, 5}));
  EXPECT_EQ(fn::linear(random({2, 0, 8}, 1, at::kBFloat16), b.t().contiguous()).sizes(), at::IntArrayRef({2, 0, 5}));
}

std::vector<Tensor> with_gradients(const Tensor& out, const std::vector<Tensor>& leaves, const Tensor& grad) {
  auto results = torch::autograd::grad({out}, leaves, {grad});
  results.insert(results.begin(), out.detach());
  return results;
}

TEST(OwnLinear, EqualsFloat64ForwardAndBackward) {
  const NativeProducts none(false);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {2, 90}) {
      std::vector<Tensor> low, exact;
      for (const auto& x : {random({rows, 3, 40}, 1, dtype), random({70, 40}, 2, dtype), random({70}, 3, dtype)}) {
        low.push_back(x.detach().clone().requires_grad_());
        exact.push_back(x.to(at::kDouble).detach().requires_grad_());
      }
      const Tensor grad = random({rows, 3, 70}, 4, dtype);
      const auto got = with_gradients(fn::linear(low[0], low[1], low[2]), low, grad);
      const auto wanted = with_gradients(at::linear(exact[0], exact[1], exact[2]), exact, grad.to(at::kDouble));
      for (size_t i = 0; i < got.size(); ++i) expect_rounded_once(got[i], wanted[i], 300);
    }
  }
}

TEST(OwnLinear, GivesNoGradientToWhatIsFrozen) {
  const NativeProducts none(false);
  const Tensor x = random({4, 8}, 1, at::kBFloat16), w = random({6, 8}, 2, at::kBFloat16);
  const Tensor wanting = x.detach().clone().requires_grad_();
  const auto got = torch::autograd::grad({fn::linear(wanting, w)}, {wanting}, {random({4, 6}, 3, at::kBFloat16)});
  EXPECT_TRUE(got[0].equal(fn::product(random({4, 6}, 3, at::kBFloat16), w)));
  EXPECT_FALSE(fn::linear(x, w).requires_grad());
}

TEST(OwnLinear, HasItsGradientsWithoutItsValue) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Tensor x = random({3, 5, 24}, 1, dtype).requires_grad_(), w = random({16, 24}, 2, dtype).requires_grad_();
    const Tensor b = random({16}, 3, dtype).requires_grad_(), g = random({3, 5, 16}, 4, dtype);
    for (const bool biased : {false, true}) {
      const auto bias = biased ? std::make_optional(b) : std::nullopt;
      const Tensor whole = fn::linear_product(x, w, bias), hollow = fn::linear_without_value(x, w, bias);
      EXPECT_EQ(hollow.sizes(), whole.sizes());
      EXPECT_EQ(hollow.abs().max().item<float>(), 0.0F) << "nothing was computed";
      const std::vector<Tensor> inputs = biased ? std::vector<Tensor>{x, w, b} : std::vector<Tensor>{x, w};
      const auto expected = torch::autograd::grad({whole}, inputs, {g}),
                 found = torch::autograd::grad({hollow}, inputs, {g});
      for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
    }
  }
}

TEST(PackedProduct, EqualsFloat64WhateverItsSizesAndLayouts) {
  const PackedProducts packed(true);
  // Whole blocks; rests of rows, columns and depth; more than is packed at a time in each direction.
  for (const auto& [m, k, n] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{128, 64, 64},
                                                                                  {64, 512, 128},
                                                                                  {65, 65, 65},
                                                                                  {100, 70, 90},
                                                                                  {129, 513, 127},
                                                                                  {1030, 64, 1100},
                                                                                  {200, 1040, 64}}) {
    for (const bool turn_a : {false, true}) {
      for (const bool turn_b : {false, true}) {
        SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n << (turn_a ? " a^T" : "")
                                        << (turn_b ? " b^T" : ""));
        const Tensor a = turn_a ? random({k, m}, 1, at::kFloat).t() : random({m, k}, 1, at::kFloat);
        const Tensor b = turn_b ? random({n, k}, 2, at::kFloat).t() : random({k, n}, 2, at::kFloat);
        ASSERT_TRUE(fn::packs_product(a, {m, k, n}));
        const Tensor exact = a.to(at::kDouble).matmul(b.to(at::kDouble));
        const auto error = [&](const Tensor& got) { return got.to(at::kDouble).sub(exact).abs().max().item<double>(); };
        EXPECT_LE(error(fn::product(a, b)), 4 * error(a.mm(b)) + 1e-5) << "as exact as LibTorch's";
        const Tensor wider = at::full({m, n + 3}, 7.0F, a.options());
        fn::product_into(wider.narrow(1, 0, n), a, b);
        EXPECT_TRUE(wider.narrow(1, 0, n).equal(fn::product(a, b)));
        EXPECT_TRUE(wider.narrow(1, n, 3).eq(7).all().item<bool>()) << "written beside the result";
      }
    }
  }
}

/// What a row gets is the same to the bit however many stand beside it.
TEST(PackedProduct, OfFewRowsReadsWeightsWhereTheyStand) {
  const PackedProducts packed(true);
  const Tensor all = random({100, 401}, 1, at::kFloat), w = random({99, 401}, 2, at::kFloat),
               b = random({99}, 3, at::kFloat);
  const Tensor exact = at::linear(all.to(at::kDouble), w.to(at::kDouble), b.to(at::kDouble));
  const Tensor many = fn::linear(all, w, b), without = fn::linear(all, w);
  for (int64_t rows = 1; rows <= 66; ++rows) {
    SCOPED_TRACE(rows);
    const Tensor x = all.narrow(0, 0, rows), got = fn::linear(x, w, b);
    EXPECT_LE(got.to(at::kDouble).sub(exact.narrow(0, 0, rows)).abs().max().item<double>(), 6e-5);
    EXPECT_TRUE(rows == 1 || got.equal(many.narrow(0, 0, rows)));
    const Tensor wider = at::full({rows, 99 + 3}, 7.0F, x.options());
    fn::product_into(wider.narrow(1, 0, 99), x, w.t());
    EXPECT_TRUE(rows == 1 || wider.narrow(1, 0, 99).equal(without.narrow(0, 0, rows)));
    EXPECT_TRUE(wider.narrow(1, 99, 3).eq(7).all().item<bool>()) << "written beside the result";
  }
}

TEST(PackedProduct, TakesAMatrixWithoutAContiguousSide) {
  const PackedProducts packed(true);
  const Tensor a = random({80, 140}, 1, at::kFloat),
               b = random({70, 2, 90, 3}, 2, at::kFloat).select(3, 1).select(1, 0);
  const Tensor thin = a.slice(1, 0, 140, 2);
  EXPECT_TRUE(fn::product(thin, b).equal(fn::product(thin.contiguous(), b.contiguous())));
}

TEST(PackedProduct, IsALinearWithItsGradients) {
  const PackedProducts packed(true);
  std::vector<Tensor> own, exact;
  for (const auto& x :
       {random({30, 3, 100}, 1, at::kFloat), random({70, 100}, 2, at::kFloat), random({70}, 3, at::kFloat)}) {
    own.push_back(x.detach().clone().requires_grad_());
    exact.push_back(x.to(at::kDouble).detach().requires_grad_());
  }
  const Tensor grad = random({30, 3, 70}, 4, at::kFloat);
  const auto got = with_gradients(fn::linear(own[0], own[1], own[2]), own, grad);
  const auto wanted = with_gradients(at::linear(exact[0], exact[1], exact[2]), exact, grad.to(at::kDouble));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(got[i].to(at::kDouble).sub(wanted[i]).abs().max().item<double>(), 3e-5) << i;
  }
}

TEST(PackedProduct, HasTheSameBitsForAnyNumberOfThreads) {
  const PackedProducts packed(true);
  const Tensor a = random({300, 600}, 1, at::kFloat), b = random({500, 600}, 2, at::kFloat).t();
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor alone = fn::product(a, b);
  at::set_num_threads(3);
  EXPECT_TRUE(fn::product(a, b).equal(alone));
  at::set_num_threads(before);
}

TEST(PackedProduct, TakesAsMuchMemoryAsItsRehearsal) {
  const PackedProducts packed(true);
  const auto peak = [](const char* device, int64_t rows) {
    const auto memory = DeviceMemory::make(device, {.torch_device = device[0] == 'm' ? "meta" : "cpu"});
    const OnDevice scope(memory);
    const auto options = at::TensorOptions().device(memory->torch_device());
    const Tensor x = at::zeros({rows, 700}, options), w = at::zeros({900, 700}, options), b = at::zeros({900}, options);
    (void)fn::linear(x, w, b);
    return memory->peak_bytes();
  };
  for (const int64_t rows : {1, 7, 20, 64, 1500}) EXPECT_EQ(peak("meta", rows), peak("virtual:1", rows)) << rows;
}

/// What the tiles take is known before: the same bytes on hollow tensors.
TEST(Product, TakesAsMuchMemoryAsItsRehearsal) {
  const NativeProducts none(false);
  const auto peak = [](const char* device, int64_t rows) {
    const auto memory = DeviceMemory::make(device, {.torch_device = device[0] == 'm' ? "meta" : "cpu"});
    const OnDevice scope(memory);
    const auto options = at::TensorOptions().dtype(at::kBFloat16).device(memory->torch_device());
    const Tensor x = at::zeros({rows, 700}, options), w = at::zeros({900, 700}, options);
    (void)fn::linear(x, w);
    return memory->peak_bytes();
  };
  for (const int64_t rows : {1, 7, 600}) EXPECT_EQ(peak("meta", rows), peak("virtual:1", rows)) << rows;
  EXPECT_GT(peak("meta", 600), (600 * 700 + 900 * 700 + 600 * 900) * 2 + 900 * 700 * 4);
}

TEST(Product, IsLibTorchsOwnWhereTheProcessorMultiplies) {
  const NativeProducts own(true);
  const Tensor x = random({40, 64}, 1, at::kBFloat16), w = random({48, 64}, 2, at::kBFloat16);
  EXPECT_FALSE(fn::widens(x));
  EXPECT_TRUE(fn::linear(x, w).equal(at::linear(x, w)));
  EXPECT_FALSE(fn::widens(x.to(at::kFloat)));
  const NativeProducts none(false);
  EXPECT_TRUE(fn::widens(x));
  EXPECT_TRUE(fn::widens(x.to(at::kHalf)));
  EXPECT_FALSE(fn::widens(x.to(at::kFloat)));
}

}  // namespace
}  // namespace lockstep
