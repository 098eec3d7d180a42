// Attention against softmax written out in float64.
#include <limits>
#include <random>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, dim;
  bool causal;
};

Tensor random_heads(int64_t batch, int64_t tokens, int64_t heads, int64_t dim, const std::string& name) {
  Tensor made = at::zeros({batch, tokens, heads, dim}, at::kFloat);
  fill_normal(made, 1.0, 3, name);
  return made.transpose(1, 2);
}

Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& allowed) {
  const int64_t copies = q.size(1) / k.size(1);
  Tensor scores = q.matmul(k.repeat_interleave(copies, 1).transpose(2, 3)).div(std::sqrt(double(q.size(3))));
  scores = scores.masked_fill(allowed.logical_not(), -1e30);
  const Tensor probs = at::softmax(scores, -1).masked_fill(allowed.logical_not(), 0.0);
  return probs.matmul(v.repeat_interleave(copies, 1));
}

Tensor allowed_of(const Case& c) {
  const Tensor all = at::ones({1, 1, c.queries, c.keys}, at::kBool);
  return c.causal ? all.tril(c.keys - c.queries) : all;
}

void expect_attention(const Case& c, at::ScalarType dtype, double tolerance, const Tensor* mask) {
  SCOPED_TRACE(testing::Message() << c.heads << "/" << c.kv_heads << " heads of " << c.dim << ", " << c.queries << " x "
                                  << c.keys << (c.causal ? " causal " : " ") << at::toString(dtype));
  std::vector<Tensor> low, exact;
  for (const auto& x :
       {random_heads(c.batch, c.queries, c.heads, c.dim, "q"), random_heads(c.batch, c.keys, c.kv_heads, c.dim, "k"),
        random_heads(c.batch, c.keys, c.kv_heads, c.dim, "v")}) {
    low.push_back(x.to(dtype).detach().requires_grad_());
    exact.push_back(x.to(dtype).to(at::kDouble).detach().requires_grad_());
  }
  const Tensor grad = random_heads(c.batch, c.queries, c.heads, c.dim, "g").to(dtype);
  const Tensor allowed = mask == nullptr ? allowed_of(c) : allowed_of(c).logical_and(*mask);
  const Tensor got = fn::attention(low[0], low[1], low[2], {.causal = c.causal, .mask = mask});
  const Tensor wanted = plain_attention(exact[0], exact[1], exact[2], allowed);
  auto got_all = torch::autograd::grad({got}, low, {grad});
  auto wanted_all = torch::autograd::grad({wanted}, exact, {grad.to(at::kDouble)});
  got_all.push_back(got);
  wanted_all.push_back(wanted);
  for (size_t i = 0; i < got_all.size(); ++i) {
    // Of one key the gradients of q and k are 0: what rounding leaves of two equal sums of `dim` products.
    const double scale = std::max(c.keys == 1 ? 0.4 : 0.1, wanted_all[i].abs().max().item<double>());
    EXPECT_LE(got_all[i].to(at::kDouble).sub(wanted_all[i]).abs().max().item<double>(), tolerance * scale) << i;
  }
}

TEST(Attention, EqualsTheFormulaForwardAndBackward) {
  for (const auto& c :
       {Case{2, 6, 2, 256, 256, 64, true}, Case{1, 2, 2, 65, 65, 32, true}, Case{2, 3, 1, 17, 17, 64, true},
        Case{1, 4, 4, 200, 200, 32, false}, Case{1, 4, 2, 33, 33, 12, true}, Case{2, 3, 3, 10, 10, 16, false},
        Case{1, 2, 1, 300, 300, 128, true}, Case{1, 2, 2, 1, 1, 32, true}, Case{2, 2, 1, 130, 300, 96, false},
        Case{1, 2, 2, 300, 40, 80, false}, Case{1, 1, 1, 31, 500, 64, false}}) {
    expect_attention(c, at::kFloat, 5e-6, nullptr);
    expect_attention(c, at::kBFloat16, 1.5e-2, nullptr);
    const NativeProducts none(false);
    expect_attention(c, at::kBFloat16, 1.5e-2, nullptr);
    expect_attention(c, at::kHalf, 2e-3, nullptr);
  }
}

/// The last block of keys and of queries has every number of steps, and a step every number of tokens at its edges.
TEST(Attention, TakesWhateverIsLeftOfTheLastBlock) {
  for (const int64_t tokens :
       {48, 49, 63, 64, 65, 79, 80, 81, 96, 97, 112, 127, 129, 144, 160, 177, 192, 193, 255, 257}) {
    for (const bool causal : {false, true}) {
      expect_attention({1, 2, 1, tokens, tokens, 32, causal}, at::kFloat, 5e-6, nullptr);
      expect_attention({1, 2, 1, tokens, tokens, 32, causal}, at::kBFloat16, 1.5e-2, nullptr);
    }
    expect_attention({1, 1, 1, 70, tokens, 16, true}, at::kFloat, 5e-6, nullptr);
  }
}

/// Queries that are the last of more tokens, whose heads they share: what a prompt's next piece computes.
TEST(Attention, GoesOnBehindWhatWasSaidBefore) {
  const at::NoGradGuard quiet;
  const auto expect = [](const Case& c, int64_t window, at::ScalarType dtype, double tolerance) {
    SCOPED_TRACE(testing::Message() << c.queries << " of " << c.keys << ", window " << window << ", heads of " << c.dim
                                    << " " << at::toString(dtype));
    const Tensor q = random_heads(1, c.queries, c.heads, c.dim, "q").to(dtype);
    const Tensor room = random_heads(1, c.keys + 7, c.kv_heads, c.dim, "k").to(dtype).contiguous();
    const Tensor k = room.narrow(2, 0, c.keys), v = room.mul(0.5).add(0.1).narrow(2, 0, c.keys);
    Tensor allowed = allowed_of(c);
    if (window > 0) allowed = allowed.triu(c.keys - c.queries - window + 1);
    const Tensor wanted = plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), allowed);
    const Tensor got = fn::attention(q, k, v, {.causal = true, .window = window});
    const double scale = std::max(0.1, wanted.abs().max().item<double>());
    EXPECT_LE(got.to(at::kDouble).sub(wanted).abs().max().item<double>(), tolerance * scale);
  };
  for (const int64_t queries : {1, 2, 15, 16, 17, 33, 64, 130, 200}) {
    for (const int64_t past : {1, 15, 47, 64, 100, 333}) {
      for (const int64_t window : {0, 9, 100}) {
        const Case c{1, 4, 2, queries, past + queries, 32, true};
        expect(c, window, at::kFloat, 5e-6);
        expect(c, window, at::kBFloat16, 1.5e-2);
        const NativeProducts none(false);
        expect(c, window, at::kBFloat16, 1.5e-2);
        expect(c, window, at::kHalf, 2e-3);
      }
    }
  }
  expect({1, 3, 1, 40, 90, 12, true}, 0, at::kFloat, 5e-6);
  expect({1, 6, 2, 40, 90, 80, true}, 20, at::kFloat, 5e-6);
  expect({1, 6, 2, 40, 90, 80, true}, 20, at::kBFloat16, 1.5e-2);
}

/// Later keys weigh more, so that what was summed before shrinks in every tile; the last ones weigh less again.
TEST(Attention, KeepsItsSumsInRangeWhateverTheKeysAre) {
  for (const bool causal : {false, true}) {
    for (const double step : {0.3, 40.0}) {
      Tensor q = random_heads(1, 400, 1, 32, "q").abs(), k = random_heads(1, 400, 1, 32, "k").abs();
      const Tensor v = random_heads(1, 400, 1, 32, "v");
      for (int64_t s = 0; s < 400; ++s) k.select(2, s).mul_(step * static_cast<double>(s < 300 ? s : 10) / 400);
      const Tensor got = fn::attention(q, k, v, {.causal = causal});
      const Tensor wanted = plain_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble),
                                            allowed_of({1, 1, 1, 400, 400, 32, causal}));
      EXPECT_LE(got.to(at::kDouble).sub(wanted).abs().max().item<double>(), step > 1 ? 2e-3 : 2e-5) << causal << step;
    }
  }
}

/// Views whose head dim is not contiguous.
TEST(Attention, TakesAnyLayout) {
  const Tensor q = random_heads(2, 70, 4, 32, "q"), k = random_heads(2, 70, 4, 32, "k");
  const auto turned = [](const Tensor& x) { return x.transpose(2, 3).contiguous().transpose(2, 3); };
  EXPECT_TRUE(
      fn::attention(q, k, k, {.causal = true}).equal(fn::attention(turned(q), turned(k), turned(k), {.causal = true})));
}

TEST(Attention, ShowsWhatIsNotANumber) {
  Tensor q = random_heads(1, 70, 2, 32, "q");
  const Tensor k = random_heads(1, 70, 2, 32, "k");
  q.select(2, 5).fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor out = fn::attention(q, k, k, {.causal = true});
  EXPECT_TRUE(out.select(2, 5).isnan().all().item<bool>());
  EXPECT_FALSE(out.select(2, 4).isnan().any().item<bool>());
}

/// More than is widened at once: parts of the batch, and parts of a row's heads.
TEST(Attention, IsTheSameInPartsOfAnySize) {
  const NativeProducts none(false);
  expect_attention({5, 4, 2, 1100, 1100, 64, true}, at::kBFloat16, 1.5e-2, nullptr);
  expect_attention({2, 20, 20, 1100, 1100, 64, false}, at::kHalf, 2e-3, nullptr);
}

TEST(Attention, PutsTheQueriesAtTheEndWhenThereAreMoreKeys) {
  expect_attention({1, 4, 2, 3, 9, 16, true}, at::kFloat, 5e-6, nullptr);
  expect_attention({2, 4, 2, 1, 9, 16, true}, at::kFloat, 5e-6, nullptr);
}

TEST(Attention, GivesZerosToARowThatMayLookNowhere) {
  Tensor mask = at::ones({2, 1, 6, 6}, at::kBool);
  mask.select(0, 1).narrow(2, 0, 3).fill_(false);  // the second row's first three keys are padding
  expect_attention({2, 4, 2, 6, 6, 16, true}, at::kFloat, 5e-6, &mask);
  const NativeProducts none(false);
  expect_attention({2, 4, 2, 6, 6, 16, true}, at::kBFloat16, 1.5e-2, &mask);
  const Tensor q = random_heads(2, 6, 4, 16, "q"), k = random_heads(2, 6, 2, 16, "k");
  const Tensor out = fn::attention(q, k, k, {.causal = true, .mask = &mask});
  EXPECT_EQ(out.select(0, 1).narrow(1, 0, 3).abs().max().item<float>(), 0.0F);
}

TEST(Attention, GivesTheSameBitsWithAndWithoutRecording) {
  for (const auto& [dtype, native] :
       std::vector<std::pair<at::ScalarType, bool>>{{at::kFloat, true},
                                                    {at::kBFloat16, multiplies_natively(Dtype::kBF16)},
                                                    {at::kBFloat16, false},
                                                    {at::kHalf, false}}) {
    const NativeProducts products(native);
    const Tensor q = random_heads(1, 70, 4, 64, "q").to(dtype), k = random_heads(1, 70, 2, 64, "k").to(dtype);
    const Tensor plain = fn::attention(q, k, k, {.causal = true});
    const Tensor recorded = fn::attention(q.detach().requires_grad_(), k, k, {.causal = true});
    EXPECT_TRUE(plain.equal(recorded.detach()));
  }
}

/// Rows behind one another against one mask over all of them.
TEST(Attention, RowsBehindOneAnotherLookAtThemselvesAlone) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const bool causal = round % 2 == 1;
    std::vector<int64_t> ends;
    for (auto i = 1 + random() % 6; i > 0; --i) {
      const auto length = static_cast<int64_t>(1 + random() % 4 * 3), same = static_cast<int64_t>(1 + random() % 3);
      for (int64_t s = 0; s < same; ++s) ends.push_back((ends.empty() ? 0 : ends.back()) + length);
    }
    const Tensor mask = at::zeros({1, 1, ends.back(), ends.back()}, at::kBool);
    int64_t begin = 0;
    for (const int64_t end : ends) {
      mask.narrow(2, begin, end - begin).narrow(3, begin, end - begin).fill_(true);
      begin = end;
    }
    std::vector<Tensor> mine, theirs;
    for (const auto* name : {"q", "k", "v"}) {
      mine.push_back(random_heads(1, ends.back(), name[0] == 'q' ? 4 : 2, 16, name).set_requires_grad(true));
      theirs.push_back(mine.back().detach().clone().set_requires_grad(true));
    }
    const Tensor column = from_values(std::span<const int64_t>(ends), {static_cast<int64_t>(ends.size())});
    const Tensor got = fn::attention(mine[0], mine[1], mine[2], {.causal = causal, .row_ends = &column});
    const Tensor wanted = fn::attention(theirs[0], theirs[1], theirs[2], {.causal = causal, .mask = &mask});
    EXPECT_LE(got.sub(wanted).abs().max().item<double>(), 1e-5);
    const Tensor grad = random_heads(1, ends.back(), 4, 16, "g");
    const auto got_all = torch::autograd::grad({got}, mine, {grad});
    const auto wanted_all = torch::autograd::grad({wanted}, theirs, {grad});
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(got_all[i].sub(wanted_all[i]).abs().max().item<double>(), 1e-4);
  }
}

/// One query a row over caches of any length, in any order and beside any others: the same bits.
TEST(Attention, OneQueryOverACacheDependsOnItsRowAlone) {
  const auto expect = [](int64_t heads, int64_t kv_heads, int64_t dim, at::ScalarType dtype, double tolerance) {
    SCOPED_TRACE(testing::Message() << heads << "/" << kv_heads << " x " << dim << " " << at::toString(dtype));
    const std::vector<int64_t> lengths{1, 0, 2, 15, 16, 17, 33, 100};
    const auto rows = static_cast<int64_t>(lengths.size());
    std::vector<Tensor> keys, values;
    std::vector<fn::CachedRow> cached(lengths.size());
    for (size_t r = 0; r < lengths.size(); ++r) {
      const auto made = [&](const char* name) {
        return random_heads(1, lengths[r] + 3, kv_heads, dim, name + std::to_string(r))
            .select(0, 0)
            .to(dtype)
            .contiguous();
      };
      keys.push_back(made("k"));
      values.push_back(made("v"));
    }
    for (size_t r = 0; r < lengths.size(); ++r) cached[r] = {&keys[r], &values[r], lengths[r]};
    const Tensor q = random_heads(rows, 1, heads, dim, "q").to(dtype);
    const Tensor got = fn::cached_attention(q, cached);
    for (int64_t r = 0; r < rows; ++r) {
      SCOPED_TRACE(lengths[static_cast<size_t>(r)]);
      const int64_t length = lengths[static_cast<size_t>(r)];
      if (length == 0) {
        EXPECT_EQ(got[r].abs().max().item<double>(), 0.0);
        continue;
      }
      const auto seen = [&](const Tensor& x) { return x.narrow(1, 0, length).unsqueeze(0).to(at::kDouble); };
      const Tensor wanted =
          plain_attention(q.narrow(0, r, 1).to(at::kDouble), seen(keys[static_cast<size_t>(r)]),
                          seen(values[static_cast<size_t>(r)]), at::ones({1, 1, 1, length}, at::kBool));
      EXPECT_LE(got.narrow(0, r, 1).to(at::kDouble).sub(wanted).abs().max().item<double>(), tolerance);
      const std::vector<fn::CachedRow> alone{cached[static_cast<size_t>(r)]};
      EXPECT_TRUE(fn::cached_attention(q.narrow(0, r, 1), alone).equal(got.narrow(0, r, 1)));
    }
  };
  expect(4, 2, 64, at::kFloat, 1e-5);
  expect(6, 6, 20, at::kFloat, 1e-5);
  expect(7, 1, 128, at::kFloat, 1e-5);
  expect(4, 2, 64, at::kBFloat16, 3e-2);
  expect(4, 2, 64, at::kHalf, 4e-3);
  expect(4, 2, 16, at::kDouble, 1e-5);  // no kernels: the composed path
}

}  // namespace
}  // namespace lockstep
