// What adapters add to products, against the same mathematics in float64 by plain autograd.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/packed_product.h"
#include "lockstep/tensor/product.h"
#include "lockstep/tensor/test_numbers.h"

namespace lockstep {
namespace {

using test::drawn;

double relative(const Tensor& got, const Tensor& wanted) {
  const double scale = std::max(1e-6, wanted.abs().max().item<double>());
  return got.to(at::kDouble).sub(wanted).abs().max().item<double>() / scale;
}

/// Three parts over 40 columns: one between the first and the last, which leave columns 12..14 and 37..39 alone.
std::vector<fn::LowRankPart> uneven_parts() {
  return {{.first = 0, .count = 12, .rank = 3, .begin = 0, .scale = 2.0},
          {.first = 15, .count = 10, .rank = 8, .begin = 36, .scale = 0.25},
          {.first = 25, .count = 12, .rank = 1, .begin = 116, .scale = -1.5}};
}
constexpr int64_t kOutputs = 40, kRanks = 12, kOfB = 128;

/// What the parts say, by whole matrices.
Tensor plain_low_rank(const Tensor& x, const Tensor& a, const Tensor& b, const std::vector<fn::LowRankPart>& parts,
                      int64_t outputs) {
  std::vector<Tensor> pieces;
  int64_t end = 0, rank = 0;
  const auto fill_to = [&](int64_t begin) {
    if (begin > end)
      pieces.push_back(x.narrow(-1, 0, 1).mul(0).expand([&] {
        auto shape = x.sizes().vec();
        shape.back() = begin - end;
        return shape;
      }()));
  };
  for (const auto& part : parts) {
    fill_to(part.first);
    const Tensor b_Or = b.narrow(0, part.begin, part.count * part.rank).view({part.count, part.rank});
    pieces.push_back(x.matmul(a.narrow(0, rank, part.rank).t()).matmul(b_Or.t()).mul(part.scale));
    rank += part.rank;
    end = part.first + part.count;
  }
  fill_to(outputs);
  return at::cat(pieces, -1);
}

struct Sizes {
  std::vector<int64_t> rows;
  int64_t inputs = 0;
};

/// y, then gradients of base, a, b, and x where it learns.
std::vector<Tensor> low_rank_results(const Sizes& sizes, at::ScalarType dtype, bool x_learns, bool plain) {
  const auto leaf = [&](const Tensor& value) { return (plain ? value.to(at::kDouble) : value).detach().clone(); };
  std::vector<int64_t> of_x = sizes.rows, of_y = sizes.rows;
  of_x.push_back(sizes.inputs);
  of_y.push_back(kOutputs);
  const Tensor x = leaf(drawn(of_x, "x", dtype)).requires_grad_(x_learns);
  const Tensor base = leaf(drawn(of_y, "base", dtype)).requires_grad_();
  // Adapters are float32 whatever they are multiplied with; the reference has the numbers that are multiplied.
  const auto adapter = [&](at::IntArrayRef shape, const char* name) {
    const Tensor value = drawn(shape, name);
    return leaf(plain ? value.to(dtype) : value).requires_grad_();
  };
  const Tensor a = adapter({kRanks, sizes.inputs}, "a"), b = adapter({kOfB}, "b");
  const auto parts = uneven_parts();
  const Tensor y =
      plain ? base.add(plain_low_rank(x, a, b, parts, kOutputs)) : fn::add_low_rank(base.clone(), x, a, b, parts);
  std::vector<Tensor> leaves{base, a, b};
  if (x_learns) leaves.push_back(x);
  auto results = torch::autograd::grad({y}, leaves, {leaf(drawn(of_y, "g", dtype))});
  results.insert(results.begin(), y.detach());
  return results;
}

TEST(AddLowRank, EqualsPlainAutogradForUnevenPartsWithHolesBetween) {
  for (const bool native : {true, false}) {
    const NativeProducts products(native);
    for (const Sizes& sizes : {Sizes{{1}, 5}, Sizes{{2, 17}, 24}, Sizes{{3, 2, 4}, 7}}) {
      for (const bool x_learns : {true, false}) {
        for (const auto& [dtype, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
                 {at::kFloat, 3e-6}, {at::kBFloat16, 2e-2}, {at::kHalf, 3e-3}}) {
          const auto got = low_rank_results(sizes, dtype, x_learns, false);
          const auto wanted = low_rank_results(sizes, dtype, x_learns, true);
          for (size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_LE(relative(got[i], wanted[i]), tolerance) << "result " << i << " of " << at::toString(dtype);
          }
        }
      }
    }
  }
}

/// y, then gradients of a, b, x, and of w and its bias where they learn.
struct LinearCase {
  at::ScalarType dtype;
  int64_t rows, inputs;
  bool valued, base_learns;
};
std::vector<Tensor> linear_results(const LinearCase& of, bool plain) {
  const auto dtype = of.dtype;
  const int64_t rows = of.rows, inputs = of.inputs;
  const bool valued = of.valued, base_learns = of.base_learns;
  const auto leaf = [&](const Tensor& value, bool learns) {
    return (plain ? value.to(dtype).to(at::kDouble) : value).detach().clone().requires_grad_(learns);
  };
  const Tensor x = leaf(drawn({2, rows, inputs}, "x", dtype), true);
  const Tensor w = leaf(drawn({kOutputs, inputs}, "w", dtype), base_learns);
  const Tensor bias = leaf(drawn({kOutputs}, "bias", dtype), base_learns);
  const Tensor a = leaf(drawn({kRanks, inputs}, "a"), true), b = leaf(drawn({kOfB}, "b"), true);
  const auto parts = uneven_parts();
  const Tensor y = plain ? x.matmul(w.t()).add(bias).add(plain_low_rank(x, a, b, parts, kOutputs))
                         : fn::adapted_linear(x, {w, &bias, valued}, a, b, parts);
  std::vector<Tensor> leaves{a, b, x};
  if (base_learns) leaves.insert(leaves.end(), {w, bias});
  auto results = torch::autograd::grad({y}, leaves, {leaf(drawn({2, rows, kOutputs}, "g", dtype), false)});
  results.insert(results.begin(), valued || plain ? y.detach() : Tensor());
  return results;
}

void expect_linear(const LinearCase& of, double tolerance) {
  const auto got = linear_results(of, false), wanted = linear_results(of, true);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!got[i].defined()) continue;
    EXPECT_LE(relative(got[i], wanted[i]), tolerance)
        << "result " << i << " of " << of.rows << " x " << of.inputs << ", " << at::toString(of.dtype);
  }
}

TEST(AdaptedLinear, EqualsPlainAutogradWithItsValueOrForGradientsAlone) {
  for (const bool ours : {true, false}) {
    const NativeProducts products(!ours);
    const PackedProducts packed(ours);
    for (const auto& [rows, inputs] : std::vector<std::pair<int64_t, int64_t>>{{37, 48}, {75, 50}, {66, 420}}) {
      for (const bool valued : {true, false}) {
        expect_linear({at::kFloat, rows, inputs, valued, false}, 3e-6);
        expect_linear({at::kBFloat16, rows, inputs, valued, false}, 2e-2);
        expect_linear({at::kHalf, rows, inputs, valued, false}, 3e-3);
      }
      expect_linear({at::kFloat, rows, inputs, true, true}, 3e-6);
    }
  }
}

TEST(AddLowRank, GivesGradientsOfAdaptersInTheirOwnDtype) {
  const auto got = low_rank_results({{4}, 6}, at::kBFloat16, true, false);
  EXPECT_EQ(got[1].scalar_type(), at::kBFloat16);
  EXPECT_EQ(got[2].scalar_type(), at::kFloat);
  EXPECT_EQ(got[3].scalar_type(), at::kFloat);
  EXPECT_EQ(got[4].scalar_type(), at::kBFloat16);
}

TEST(AddLowRank, LeavesColumnsOutsideOfItsPartsAsTheyWere) {
  const Tensor base = drawn({9, kOutputs}, "base"), x = drawn({9, 6}, "x");
  const Tensor y = fn::add_low_rank(base.clone(), x, drawn({kRanks, 6}, "a"), drawn({kOfB}, "b"), uneven_parts());
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{12, 3}, {37, 3}}) {
    EXPECT_TRUE(y.narrow(1, first, count).equal(base.narrow(1, first, count))) << first;
  }
  EXPECT_FALSE(y.narrow(1, 0, 12).equal(base.narrow(1, 0, 12)));
}

TEST(AddLowRank, BIsZeroGivesTheSameBitsAndAGradientOfBAlone) {
  const Tensor base = drawn({9, kOutputs}, "base"), x = drawn({9, 6}, "x");
  const Tensor a = drawn({kRanks, 6}, "a").requires_grad_(), b = at::zeros({kOfB}).requires_grad_();
  const Tensor y = fn::add_low_rank(base.clone(), x, a, b, uneven_parts());
  EXPECT_TRUE(y.equal(base));
  const auto grads = torch::autograd::grad({y.sum()}, {a, b});
  EXPECT_EQ(grads[0].abs().max().item<float>(), 0.0F);
  EXPECT_GT(grads[1].abs().max().item<float>(), 0.0F);
}

TEST(AddLowRank, RecordsNothingWhereNobodyLearns) {
  const at::NoGradGuard quiet;
  const Tensor a = drawn({kRanks, 6}, "a").requires_grad_();
  const Tensor y =
      fn::add_low_rank(drawn({9, kOutputs}, "base"), drawn({9, 6}, "x"), a, drawn({kOfB}, "b"), uneven_parts());
  EXPECT_FALSE(y.requires_grad());
}

TEST(LowRankRowNorms, EqualThoseOfTheWholeMatrix) {
  for (const int64_t height : {3, 256, 300, 700}) {
    const int64_t rest = height + 5;
    const std::vector<fn::LowRankPart> parts{
        {.first = 0, .count = height, .rank = 3, .begin = 0, .scale = 0.5},
        {.first = height + 2, .count = 3, .rank = 2, .begin = 3 * height, .scale = -2}};
    const Tensor w = drawn({rest, 6, 2, 2}, "w"), a = drawn({5, 24}, "a"), b = drawn({3 * height + 6}, "b");
    const auto d = [](const Tensor& x) { return x.to(at::kDouble); };
    const Tensor first =
        d(w).flatten(1)
            .narrow(0, 0, height)
            .add(d(b).narrow(0, 0, 3 * height).view({height, 3}).matmul(d(a).narrow(0, 0, 3)).mul(0.5));
    const Tensor second = d(w).flatten(1)
                              .narrow(0, height + 2, 3)
                              .add(d(b).narrow(0, 3 * height, 6).view({3, 2}).matmul(d(a).narrow(0, 3, 2)).mul(-2));
    const Tensor wanted = at::cat({first.norm(2, 1), second.norm(2, 1)});
    EXPECT_LE(relative(fn::low_rank_row_norms(w, a, b, parts), wanted), 2e-6) << height;
    const Tensor rounded = fn::low_rank_row_norms(w.to(at::kBFloat16), a, b, parts);
    EXPECT_EQ(rounded.scalar_type(), at::kFloat);
    EXPECT_LE(relative(rounded, wanted), 5e-3) << height;
  }
}

TEST(LowRankRowNorms, OfATableAreItsColumns) {
  const Tensor table_VD = drawn({50, 7}, "table"), a_rV = drawn({3, 50}, "a"), b = drawn({21}, "b");
  const Tensor got = fn::low_rank_row_norms(table_VD.t(), a_rV, b, {{.first = 0, .count = 7, .rank = 3, .scale = 2}});
  const Tensor wanted =
      table_VD.to(at::kDouble).t().add(b.to(at::kDouble).view({7, 3}).matmul(a_rV.to(at::kDouble)).mul(2)).norm(2, 1);
  EXPECT_LE(relative(got, wanted), 2e-6);
}

TEST(LowRankRowNorms, PassNoGradient) {
  const Tensor b = drawn({8}, "b").requires_grad_();
  EXPECT_FALSE(
      fn::low_rank_row_norms(drawn({4, 3}, "w"), drawn({2, 3}, "a"), b, {{.count = 4, .rank = 2}}).requires_grad());
}

/// hidden [R,D], w [V,D], low [R,r], b [V,r], targets.
struct Problem {
  Tensor hidden, w, low, b, targets;
  std::array<bool, 4> learns{true, true, true, true};
};

Problem problem(int64_t ignore_every) {
  constexpr int64_t kRows = 150, kVocab = 101;
  Problem made{drawn({kRows, 24}, "hidden"), drawn({kVocab, 24}, "w").mul(0.3), drawn({kRows, 4}, "low").mul(0.5),
               drawn({kVocab, 4}, "of b"), at::zeros({kRows}, at::kLong)};
  for (int64_t r = 0; r < kRows; ++r) made.targets[r] = r % ignore_every == 0 ? -100 : (r * 7919) % kVocab;
  return made;
}

/// Loss, hits, and gradients of what learns.
std::vector<Tensor> loss_results(const Problem& p, at::ScalarType dtype, int64_t chunk, bool plain) {
  const auto leaf = [&](const Tensor& value, bool learns) {
    return value.to(dtype).to(plain ? at::kDouble : dtype).detach().clone().requires_grad_(learns);
  };
  const std::vector<Tensor> all{leaf(p.hidden, p.learns[0]), leaf(p.w, p.learns[1]), leaf(p.low, p.learns[2]),
                                leaf(p.b, p.learns[3])};
  Tensor loss, hits;
  if (plain) {
    const Tensor logits = all[0].matmul(all[1].t()).add(all[2].matmul(all[3].t()));
    loss = at::cross_entropy_loss(logits, p.targets, {}, at::Reduction::Sum).mul(0.01);
    hits = logits.argmax(1).eq(p.targets).sum();
  } else {
    std::tie(loss, hits) =
        fn::chunked_cross_entropy(all[0], all[1], p.targets, 0.01, chunk, fn::LowRankLogits{all[2], all[3]});
  }
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < all.size(); ++i) {
    if (p.learns[i]) leaves.push_back(all[i]);
  }
  std::vector<Tensor> results{loss.detach(), hits};
  if (leaves.empty()) return results;
  for (auto& grad : torch::autograd::grad({loss}, leaves)) results.push_back(std::move(grad));
  return results;
}

void expect_loss(const Problem& p, at::ScalarType dtype, int64_t chunk, double tolerance) {
  const auto got = loss_results(p, dtype, chunk, false), wanted = loss_results(p, dtype, chunk, true);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (i == 1) continue;
    EXPECT_LE(relative(got[i], wanted[i]), tolerance) << "result " << i << " in chunks of " << chunk;
  }
  if (dtype == at::kFloat) {
    EXPECT_EQ(got[1].item<int64_t>(), wanted[1].item<int64_t>());
  }
}

TEST(CrossEntropyOfAnAdaptedHead, EqualsTheWholeLogitsForEveryChunk) {
  for (const int64_t chunk : {1, 7, 64, 1000}) {
    for (const int64_t ignore_every : {2, 3, 1000}) expect_loss(problem(ignore_every), at::kFloat, chunk, 3e-6);
  }
}

TEST(CrossEntropyOfAnAdaptedHead, GivesWhateverGradientsAreWanted) {
  for (unsigned which = 0; which < 16; ++which) {
    Problem p = problem(3);
    for (unsigned i = 0; i < 4; ++i) p.learns[i] = (which >> i & 1U) != 0;
    SCOPED_TRACE(which);
    expect_loss(p, at::kFloat, 40, 3e-6);
  }
}

TEST(CrossEntropyOfAnAdaptedHead, HoldsInBfloat16AndHalf) {
  for (const bool native : {true, false}) {
    const NativeProducts products(native);
    expect_loss(problem(5), at::kBFloat16, 32, 3e-2);
    expect_loss(problem(5), at::kHalf, 32, 5e-3);
  }
}

TEST(CrossEntropyOfAnAdaptedHead, IsZeroWhenEverythingIsIgnored) {
  Problem p = problem(3);
  p.targets.fill_(-100);
  for (const Tensor& result : loss_results(p, at::kFloat, 32, false)) {
    EXPECT_EQ(result.abs().sum().item<double>(), 0.0);
  }
}

TEST(CrossEntropyOfAnAdaptedHead, ScalesByTheGradientThatArrives) {
  const Problem p = problem(3);
  const Tensor b = p.b.clone().requires_grad_(), low = p.low.clone().requires_grad_();
  const auto grads_of = [&](double times) {
    const auto made = fn::chunked_cross_entropy(p.hidden, p.w, p.targets, 1.0, 32, fn::LowRankLogits{low, b});
    return torch::autograd::grad({made.first.mul(times)}, {low, b});
  };
  const auto once = grads_of(1), thrice = grads_of(3);
  for (size_t i = 0; i < 2; ++i) EXPECT_LE(relative(thrice[i], once[i].to(at::kDouble).mul(3)), 1e-6);
}

}  // namespace
}  // namespace lockstep
