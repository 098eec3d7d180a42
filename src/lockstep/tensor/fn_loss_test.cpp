// Chunked cross entropy against LibTorch's own on whole logits.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

struct Problem {
  Tensor hidden, w, targets;
};

Problem problem(int64_t rows, int64_t dim, int64_t vocab, int64_t ignore_every) {
  Problem made{at::zeros({rows, dim}, at::kFloat), at::zeros({vocab, dim}, at::kFloat), at::zeros({rows}, at::kLong)};
  fill_normal(made.hidden, 1.0, 5, "hidden");
  fill_normal(made.w, 0.3, 5, "w");
  for (int64_t r = 0; r < rows; ++r) made.targets[r] = r % ignore_every == 0 ? -100 : (r * 7919) % vocab;
  return made;
}

struct Outcome {
  Tensor loss, hits, dhidden, dw;
};

Outcome ours(const Problem& p, at::ScalarType dtype, double weight, int64_t chunk, double smoothing = 0) {
  const Tensor hidden = p.hidden.to(dtype).detach().clone().requires_grad_(),
               w = p.w.to(dtype).detach().clone().requires_grad_();
  const auto [loss, hits] = fn::chunked_cross_entropy(hidden, w, p.targets, weight, chunk, std::nullopt, smoothing);
  const auto grads = torch::autograd::grad({loss}, {hidden, w});
  return {loss.detach(), hits, grads[0], grads[1]};
}

Outcome whole(const Problem& p, at::ScalarType dtype, double weight, double smoothing = 0) {
  const Tensor hidden = p.hidden.to(dtype).to(at::kDouble).requires_grad_(),
               w = p.w.to(dtype).to(at::kDouble).requires_grad_();
  const Tensor logits = hidden.matmul(w.t());
  const Tensor loss = at::cross_entropy_loss(logits, p.targets, {}, at::Reduction::Sum, -100, smoothing).mul(weight);
  const auto grads = torch::autograd::grad({loss}, {hidden, w});
  return {loss.detach(), logits.argmax(1).eq(p.targets).sum(), grads[0], grads[1]};
}

double relative(const Tensor& got, const Tensor& wanted) {
  return got.to(at::kDouble).sub(wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
}

TEST(ChunkedCrossEntropy, EqualsTheWholeLogitsForEveryChunk) {
  for (const int64_t chunk : {1, 7, 64, 1000}) {
    for (const int64_t ignore_every : {2, 3, 1000}) {
      const Problem p = problem(150, 24, 101, ignore_every);
      const auto wanted = whole(p, at::kFloat, 0.01);
      const auto got = ours(p, at::kFloat, 0.01, chunk);
      EXPECT_LE(relative(got.loss, wanted.loss), 1e-6);
      EXPECT_LE(relative(got.dhidden, wanted.dhidden), 2e-6);
      EXPECT_LE(relative(got.dw, wanted.dw), 2e-6);
      EXPECT_EQ(got.hits.item<int64_t>(), wanted.hits.item<int64_t>());
    }
  }
}

TEST(ChunkedCrossEntropy, HoldsInBfloat16AndHalf) {
  const Problem p = problem(150, 64, 500, 5);
  for (const bool native : {true, false}) {
    const NativeProducts products(native);
    for (const auto& [dtype, unit] :
         std::vector<std::pair<at::ScalarType, double>>{{at::kBFloat16, 1.0}, {at::kHalf, 0.125}}) {
      const auto wanted = whole(p, dtype, 0.01), got = ours(p, dtype, 0.01, 32);
      EXPECT_LE(relative(got.loss, wanted.loss), 2e-3 * unit);
      EXPECT_LE(relative(got.dhidden, wanted.dhidden), 2e-2 * unit);
      EXPECT_LE(relative(got.dw, wanted.dw), 2e-2 * unit);
    }
  }
}

// LibTorch's label_smoothing is transformers' LabelSmoother: a part of each label over all the vocabulary.
TEST(ChunkedCrossEntropy, SpreadsAPartOfEachLabel) {
  const Problem p = problem(150, 24, 101, 3);
  for (const int64_t chunk : {7, 1000}) {
    const auto wanted = whole(p, at::kFloat, 0.01, 0.1), got = ours(p, at::kFloat, 0.01, chunk, 0.1);
    EXPECT_GT(relative(wanted.loss, whole(p, at::kFloat, 0.01).loss), 1e-3);
    EXPECT_LE(relative(got.loss, wanted.loss), 2e-6);
    EXPECT_LE(relative(got.dhidden, wanted.dhidden), 4e-6);
    EXPECT_LE(relative(got.dw, wanted.dw), 4e-6);
    EXPECT_EQ(got.hits.item<int64_t>(), wanted.hits.item<int64_t>());
  }
}

TEST(ChunkedCrossEntropy, IsZeroWhenEverythingIsIgnored) {
  Problem p = problem(70, 8, 11, 2);
  p.targets.fill_(-100);
  const auto got = ours(p, at::kFloat, 1.0, 16);
  EXPECT_EQ(got.loss.item<float>(), 0.0F);
  EXPECT_EQ(got.hits.item<int64_t>(), 0);
  EXPECT_EQ(got.dhidden.abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(got.dw.abs().sum().item<float>(), 0.0F);
}

TEST(ChunkedCrossEntropy, ScalesByTheGradientThatArrives) {
  const Problem p = problem(20, 8, 11, 4);
  const Tensor hidden = p.hidden.clone().requires_grad_();
  const auto [loss, hits] = fn::chunked_cross_entropy(hidden, p.w, p.targets, 1.0, 8);
  const auto grad = torch::autograd::grad({loss}, {hidden}, {at::tensor(3.0F)})[0];
  EXPECT_LE(relative(grad, ours(p, at::kFloat, 3.0, 8).dhidden.to(at::kDouble)), 1e-6);
}

TEST(ChunkedCrossEntropy, CountsTheFirstOfEqualLogitsAsTheHit) {
  const Tensor hidden = at::tensor({1.0F, 1.0F}).view({2, 1}), w = at::tensor({1.0F, 2.0F, 2.0F}).view({3, 1});
  const auto first = fn::chunked_cross_entropy(hidden, w, at::tensor({1, 2}, at::kLong), 1.0, 8);
  EXPECT_EQ(first.second.item<int64_t>(), 1);
}

TEST(ChunkedCrossEntropy, MakesNoGradientsWhereNobodyRecords) {
  const Problem p = problem(20, 8, 11, 4);
  const Tensor wanted = whole(p, at::kFloat, 1.0).loss;
  const at::NoGradGuard quiet;
  const auto [loss, hits] = fn::chunked_cross_entropy(p.hidden, p.w, p.targets, 1.0, 8);
  EXPECT_LE(relative(loss, wanted), 1e-6);
}

}  // namespace
}  // namespace lockstep
