// The row kernels against the same mathematics in float64, forward and backward, at sizes with and without tails.
#include "lockstep/tensor/fn.h"

#include <functional>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using Op = std::function<Tensor(const std::vector<Tensor>&)>;

Tensor random(at::IntArrayRef shape, uint64_t salt, at::ScalarType dtype = at::kFloat) {
  Tensor made = at::zeros(shape, at::kFloat);
  fill_normal(made, 1.0, 7, "test" + std::to_string(salt));
  return made.to(dtype);
}

double max_difference(const Tensor& a, const Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

std::vector<Tensor> results_of(const Op& op, const std::vector<Tensor>& inputs, at::ScalarType dtype) {
  std::vector<Tensor> leaves;
  for (const auto& input : inputs) leaves.push_back(input.to(dtype).detach().clone().requires_grad_());
  const Tensor out = op(leaves);
  auto results = torch::autograd::grad({out}, leaves, {random(out.sizes(), 99, at::kBFloat16).to(dtype)});
  results.insert(results.begin(), out.detach());
  return results;
}

/// Results and gradients of `op` in `dtype` lie within `tolerance` (relative to the largest entry) of `plain` in
/// float64.
void expect_same(const Op& op, const Op& plain, std::vector<Tensor> inputs, at::ScalarType dtype, double tolerance) {
  for (auto& input : inputs) input = input.to(dtype);  // so that both start from the same numbers
  const auto got = results_of(op, inputs, dtype);
  const auto wanted = results_of(plain, inputs, at::kDouble);
  for (size_t i = 0; i < got.size(); ++i) {
    const double scale = std::max(1e-3, wanted[i].abs().max().item<double>());
    EXPECT_LE(max_difference(got[i], wanted[i]), tolerance * scale) << "result " << i << " of " << at::toString(dtype);
  }
}

void expect_same_in_all(const Op& op, const Op& plain, const std::vector<Tensor>& inputs) {
  expect_same(op, plain, inputs, at::kFloat, 2e-6);
  expect_same(op, plain, inputs, at::kBFloat16, 8e-3);
  expect_same(op, plain, inputs, at::kHalf, 1e-3);
}

Tensor plain_rms_norm(const Tensor& x, const Tensor& w) {
  return x.mul(x.square().mean(-1, true).add(1e-6).rsqrt()).mul(w);
}

TEST(RmsNorm, EqualsItsFormulaAtSizesWithAndWithoutTails) {
  for (const int64_t dim : {7, 16, 48, 100}) {
    for (const int64_t rows : {1, 5, 300}) {
      expect_same_in_all([](const auto& in) { return fn::rms_norm(in[0], in[1], 1e-6); },
                         [](const auto& in) { return plain_rms_norm(in[0], in[1]); },
                         {random({rows, dim}, 1), random({dim}, 2)});
    }
  }
}

TEST(Swiglu, EqualsItsFormulaAtSizesWithAndWithoutTails) {
  for (const int64_t dim : {3, 32, 70}) {
    expect_same_in_all(
        [](const auto& in) { return fn::swiglu(in[0]); },
        [dim](const auto& in) { return at::silu(in[0].narrow(-1, 0, dim)).mul(in[0].narrow(-1, dim, dim)); },
        {random({2, 5, 2 * dim}, 3).mul(3.0)});
  }
}

TEST(Swiglu, SurvivesHugeGates) {
  const Tensor y = fn::swiglu(at::tensor({1e30F, -1e30F, 200.0F, -200.0F, 1.0F, 1.0F, 1.0F, 1.0F}).view({1, 8}));
  EXPECT_EQ(y[0][0].item<float>(), 1e30F);
  EXPECT_EQ(y[0][2].item<float>(), 200.0F);
  EXPECT_NEAR(y[0][1].item<float>(), 0.0F, 1e-6F);
  EXPECT_NEAR(y[0][3].item<float>(), 0.0F, 1e-6F);
}

TEST(Rope, TurnsPairsOfHalves) {
  const Tensor cos = at::tensor({0.0F, 1.0F, 0.0F, 1.0F}).view({1, 1, 4}),
               sin = at::tensor({1.0F, 0.0F, 1.0F, 0.0F}).view({1, 1, 4});
  const Tensor turned = fn::rope(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({1, 1, 1, 4}), cos, sin);
  EXPECT_TRUE(turned.flatten().equal(at::tensor({-3.0F, 2.0F, 1.0F, 4.0F})));
}

TEST(Rope, TablesAreExactInFloat32) {
  const auto [cos, sin] = fn::rope_tables(at::arange(3).view({1, 3}), at::tensor({1.0F, 0.5F}), 2.0, Dtype::kF32);
  EXPECT_EQ(cos.sizes(), at::IntArrayRef({1, 3, 4}));
  EXPECT_FLOAT_EQ(cos[0][2][1].item<float>(), 2.0F * std::cos(1.0F));
  EXPECT_FLOAT_EQ(sin[0][2][3].item<float>(), 2.0F * std::sin(1.0F));
}

/// The composed path in float64 is the reference for the kernel.
TEST(SplitHeads, EqualsTheComposedPathForEveryHeadCount) {
  struct Case {
    int64_t heads, kv_heads, dim, table_batch;
  };
  for (const auto& c : {Case{6, 2, 16, 1}, Case{3, 1, 10, 2}, Case{4, 4, 64, 2}, Case{7, 7, 12, 1}}) {
    const fn::HeadCounts counts{c.heads, c.kv_heads, c.dim};
    const Tensor positions = at::arange(c.table_batch * 5).view({c.table_batch, 5});
    const Tensor frequencies = at::arange(c.dim / 2).add(1).reciprocal();
    for (const bool repeat : {false, true}) {
      const auto op = [&](const auto& in) {
        const auto [cos, sin] = fn::rope_tables(positions, frequencies, 1.0, Dtype::kF32);
        const auto [q, k, v] = fn::split_heads(in[0], cos, sin, counts, repeat);
        const auto whole = [&](const Tensor& x) {
          return x.size(1) == c.heads ? x : x.repeat_interleave(c.heads / c.kv_heads, 1);
        };
        return at::cat({q, whole(k), whole(v)}, 1);
      };
      expect_same_in_all(op, op, {random({2, 5, (c.heads + 2 * c.kv_heads) * c.dim}, 4)});
    }
  }
}

TEST(Activation, NamesTheKnownOnesWhenUnknown) {
  EXPECT_NEAR(fn::activation("quick_gelu", at::ones({1})).item<float>(), 0.8457957F, 1e-6F);
  EXPECT_NEAR(fn::activation("gelu", at::ones({1})).item<float>(), 0.8413447F, 1e-6F);
  EXPECT_NEAR(fn::activation("gelu_pytorch_tanh", at::ones({1})).item<float>(), 0.841192F, 1e-5F);
  EXPECT_THROW(fn::activation("mish", at::ones({1})), UserError);
}

TEST(ScatterRows, ReplacesRowsAndSplitsTheGradient) {
  const Tensor index = at::tensor({1, 4}, at::kLong);
  const auto op = [&](const auto& in) { return fn::scatter_rows(in[0], in[1], index); };
  const auto results = results_of(op, {random({2, 3, 4}, 1), random({2, 4}, 2)}, at::kFloat);
  EXPECT_TRUE(results[0].view({6, 4})[1].equal(random({2, 4}, 2)[0]));
  EXPECT_TRUE(results[0].view({6, 4})[5].equal(random({2, 3, 4}, 1).view({6, 4})[5]));
  EXPECT_EQ(results[1].view({6, 4})[4].abs().sum().item<float>(), 0.0F);
  EXPECT_TRUE(results[2][1].equal(random({2, 3, 4}, 99, at::kBFloat16).to(at::kFloat).view({6, 4})[4]));
}

TEST(PatchesOf, TimesAKernelEqualAConvolutionAndLeaveTheRemainderOut) {
  const Tensor pixels = random({2, 3, 11, 8}, 1), w = random({5, 3, 4, 4}, 2), b = random({5}, 3);
  const Tensor wanted = at::conv2d(pixels, w, b, 4).flatten(2).transpose(1, 2);
  EXPECT_LE(max_difference(fn::linear(fn::patches_of(pixels, 4), w.flatten(1), b), wanted), 1e-5);
}

TEST(FillNormal, GivesTheSameValuesForSeedAndNameAlone) {
  const Tensor a = at::zeros({1000}, at::kFloat), b = at::zeros({10, 100}, at::kFloat),
               c = at::zeros({1000}, at::kFloat);
  fill_normal(a, 0.5, 1, "w");
  fill_normal(b, 0.5, 1, "w");
  fill_normal(c, 0.5, 1, "v");
  EXPECT_TRUE(a.equal(b.flatten()));
  EXPECT_FALSE(a.equal(c));
  EXPECT_NEAR(a.std().item<double>(), 0.5, 0.05);
  EXPECT_NEAR(a.mean().item<double>(), 0.0, 0.05);
}

TEST(FromValues, KeepsValuesAndRefusesAWrongCount) {
  const std::vector<int32_t> ids{1, 2, 3, -100};
  EXPECT_TRUE(from_values(ids, {2, 2}).equal(at::tensor({1, 2, 3, -100}, at::kLong).view({2, 2})));
  EXPECT_THROW(from_values(ids, {3}), InternalError);
}

/// Queries and keys head by head, against the formula in float64; values pass as they are.
TEST(Fn, NormsHeadsOfAProjection) {
  constexpr int64_t kTokens = 150, kHeads = 3, kKvHeads = 2, kDim = 20, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  const std::pair<at::ScalarType, double> bars[] = {{at::kDouble, 1e-9}, {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}};
  for (const auto& [dtype, tolerance] : bars) {
    SCOPED_TRACE(at::toString(dtype));
    const auto made = [&](at::IntArrayRef shape, const char* name) {
      Tensor x = at::zeros(shape, at::kFloat);
      fill_normal(x, 1.0, 3, name);
      return x.to(dtype);
    };
    std::vector<Tensor> mine, exact;
    for (const Tensor& x : {made({1, kTokens, kWidth}, "x"), made({kDim}, "wq"), made({kDim}, "wk")}) {
      mine.push_back(x.detach().requires_grad_());
      exact.push_back(x.to(at::kDouble).detach().requires_grad_());
    }
    const auto normed = [&](int64_t begin, int64_t heads, const Tensor& w) {
      const Tensor x = exact[0].narrow(-1, begin, heads * kDim).unflatten(-1, {heads, kDim});
      return x.mul(x.pow(2).mean(-1, true).add(1e-6).rsqrt()).mul(w).flatten(-2);
    };
    const Tensor wanted = at::cat({normed(0, kHeads, exact[1]), normed(kHeads * kDim, kKvHeads, exact[2]),
                                   exact[0].narrow(-1, (kHeads + kKvHeads) * kDim, kKvHeads * kDim)},
                                  -1);
    const Tensor got = fn::norm_heads(mine[0], {kHeads, kKvHeads, kDim}, {.q = mine[1], .k = mine[2], .eps = 1e-6});
    const Tensor grad = made({1, kTokens, kWidth}, "g");
    auto got_all = torch::autograd::grad({got}, mine, {grad});
    auto wanted_all = torch::autograd::grad({wanted}, exact, {grad.to(at::kDouble)});
    got_all.push_back(got);
    wanted_all.push_back(wanted);
    for (size_t i = 0; i < got_all.size(); ++i) {
      const double scale = std::max(1.0, wanted_all[i].abs().max().item<double>());
      EXPECT_LE(got_all[i].to(at::kDouble).sub(wanted_all[i]).abs().max().item<double>(), tolerance * scale) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
