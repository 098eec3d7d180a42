// Attention of tokens that look back a window, against softmax over a mask of all pairs in float64.
#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/attention_bands.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

struct WindowCase {
  int64_t batch, heads, kv_heads, queries, keys, dim, window;
};

Tensor window_heads(int64_t batch, int64_t tokens, int64_t heads, int64_t dim, const std::string& name) {
  Tensor made = at::zeros({batch, tokens, heads, dim}, at::kFloat);
  fill_normal(made, 1.0, 3, name);
  return made.transpose(1, 2);
}

/// The queries are the last of the keys' tokens.
Tensor in_window(int64_t queries, int64_t keys, int64_t window) {
  return at::ones({1, 1, queries, keys}, at::kBool).tril(keys - queries).triu(keys - queries - window + 1);
}

Tensor over_mask(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  const int64_t copies = q.size(1) / k.size(1);
  const Tensor scores = q.matmul(k.repeat_interleave(copies, 1).transpose(2, 3)).div(std::sqrt(double(q.size(3))));
  return at::softmax(scores.masked_fill(mask.logical_not(), -1e30), -1).matmul(v.repeat_interleave(copies, 1));
}

struct WindowBar {
  at::ScalarType dtype;
  bool native;
  double tolerance;
  double at_random;  // one of 42,500 shapes was over the tolerance, in bfloat16
};
constexpr WindowBar kWindowBars[] = {{at::kDouble, true, 1e-6, 1e-6},     {at::kFloat, true, 5e-6, 5e-6},
                                     {at::kBFloat16, true, 1.5e-2, 2e-2}, {at::kBFloat16, false, 1.5e-2, 2e-2},
                                     {at::kHalf, true, 2e-3, 2.7e-3},     {at::kHalf, false, 2e-3, 2.7e-3}};

struct WindowLeaves {
  std::vector<Tensor> low, exact;
  Tensor grad;

  WindowLeaves(const WindowCase& c, at::ScalarType dtype)
      : grad(window_heads(c.batch, c.queries, c.heads, c.dim, "g").to(dtype)) {
    for (const auto& x :
         {window_heads(c.batch, c.queries, c.heads, c.dim, "q"), window_heads(c.batch, c.keys, c.kv_heads, c.dim, "k"),
          window_heads(c.batch, c.keys, c.kv_heads, c.dim, "v")}) {
      low.push_back(x.to(dtype).detach().requires_grad_());
      exact.push_back(x.to(dtype).to(at::kDouble).detach().requires_grad_());
    }
  }

  void expect(const Tensor& got, const Tensor& wanted, double tolerance) const {
    auto got_all = torch::autograd::grad({got}, low, {grad});
    auto wanted_all = torch::autograd::grad({wanted}, exact, {grad.to(at::kDouble)});
    got_all.push_back(got);
    wanted_all.push_back(wanted);
    for (size_t i = 0; i < got_all.size(); ++i) {
      const double scale =
          std::max(1.0, wanted_all[i].abs().max().item<double>());  // some are zeros: of a window of one
      EXPECT_LE(got_all[i].to(at::kDouble).sub(wanted_all[i]).abs().max().item<double>(), tolerance * scale) << i;
    }
  }
};

void expect_window(const WindowCase& c, double WindowBar::*tolerance = &WindowBar::tolerance) {
  for (const WindowBar& bar : kWindowBars) {
    SCOPED_TRACE(testing::Message() << c.batch << " rows, " << c.heads << "/" << c.kv_heads << " heads of " << c.dim
                                    << ", " << c.queries << " x " << c.keys << ", window " << c.window << " "
                                    << at::toString(bar.dtype) << (bar.native ? "" : " widened"));
    const NativeProducts products(bar.native && (bar.dtype != at::kBFloat16 || multiplies_natively(Dtype::kBF16)));
    const WindowLeaves leaves(c, bar.dtype);
    const Tensor mask = in_window(c.queries, c.keys, c.window);
    leaves.expect(fn::attention(leaves.low[0], leaves.low[1], leaves.low[2], {.causal = true, .window = c.window}),
                  over_mask(leaves.exact[0], leaves.exact[1], leaves.exact[2], mask), bar.*tolerance);
  }
}

TEST(WindowAttention, EqualsAMaskOfAllPairs) {
  for (const auto& c :
       {WindowCase{2, 4, 2, 300, 300, 64, 100}, WindowCase{1, 2, 2, 65, 65, 32, 1},
        WindowCase{1, 2, 1, 200, 200, 32, 64}, WindowCase{1, 2, 2, 200, 200, 16, 63},
        WindowCase{1, 2, 2, 257, 257, 32, 65}, WindowCase{2, 3, 1, 17, 17, 64, 16}, WindowCase{1, 4, 2, 33, 33, 12, 33},
        WindowCase{1, 2, 1, 600, 600, 32, 257}, WindowCase{1, 2, 2, 1, 1, 32, 1}, WindowCase{1, 4, 2, 3, 9, 16, 2},
        WindowCase{2, 4, 2, 1, 9, 16, 4}, WindowCase{1, 2, 2, 5, 9, 16, 7}}) {
    expect_window(c);
  }
}

/// Whatever the tiles and bands are: their edges fall everywhere.
TEST(WindowAttention, EqualsAMaskOfAllPairsForRandomShapes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int round = 0; round < 12; ++round) {
    const int64_t dims[] = {8, 16, 32, 48, 64}, kv_heads = draw(1, 2), tokens = draw(1, round % 2 == 0 ? 80 : 420);
    const int64_t window = round % 3 == 0 ? draw(1, 8) : draw(1, tokens + 10);
    expect_window({draw(1, 2), kv_heads * draw(1, 2), kv_heads, tokens, tokens, dims[draw(0, 4)], window},
                  &WindowBar::at_random);
  }
}

TEST(WindowAttention, RowsBehindOneAnotherLookAtThemselvesAlone) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 10; ++round) {
    std::vector<int64_t> ends;
    for (auto i = 1 + random() % 5; i > 0; --i) {
      const auto length = static_cast<int64_t>(1 + random() % 90), same = static_cast<int64_t>(1 + random() % 2);
      for (int64_t s = 0; s < same; ++s) ends.push_back((ends.empty() ? 0 : ends.back()) + length);
    }
    const auto window = static_cast<int64_t>(1 + random() % 60);
    const WindowCase c{1, 4, 2, ends.back(), ends.back(), 16, window};
    SCOPED_TRACE(testing::Message() << ends.size() << " rows of " << ends.back() << " tokens, window " << window);
    const Tensor mask = at::zeros({1, 1, c.queries, c.keys}, at::kBool);
    int64_t begin = 0;
    for (const int64_t end : ends) {
      mask.narrow(2, begin, end - begin)
          .narrow(3, begin, end - begin)
          .copy_(in_window(end - begin, end - begin, window));
      begin = end;
    }
    const Tensor column = from_values(std::span<const int64_t>(ends), {static_cast<int64_t>(ends.size())});
    const WindowLeaves leaves(c, at::kFloat);
    leaves.expect(fn::attention(leaves.low[0], leaves.low[1], leaves.low[2],
                                {.causal = true, .window = window, .row_ends = &column}),
                  over_mask(leaves.exact[0], leaves.exact[1], leaves.exact[2], mask), 5e-6);
  }
}

/// A mask of the batch (left padding) and the window hold together.
TEST(WindowAttention, HidesWhatTheMaskHidesToo) {
  const WindowCase c{2, 4, 2, 40, 40, 16, 6};
  Tensor mask = at::ones({2, 1, 40, 40}, at::kBool);
  mask.select(0, 1).narrow(2, 0, 3).fill_(false);
  const Tensor both = mask.logical_and(in_window(40, 40, 6));
  const WindowLeaves leaves(c, at::kFloat);
  const Tensor got =
      fn::attention(leaves.low[0], leaves.low[1], leaves.low[2], {.causal = true, .window = c.window, .mask = &mask});
  const Tensor wanted = over_mask(leaves.exact[0], leaves.exact[1], leaves.exact[2], both);
  const auto seeing = [](const Tensor& x) { return x.narrow(2, 3, 37).to(at::kDouble); };
  EXPECT_LE(seeing(got).sub(seeing(wanted)).abs().max().item<double>(), 5e-6);
}

TEST(WindowAttention, OfAllTokensIsTheSameBitsAsNone) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Tensor q = window_heads(1, 200, 4, 64, "q").to(dtype), k = window_heads(1, 200, 2, 64, "k").to(dtype);
    const Tensor whole = fn::attention(q, k, k, {.causal = true});
    EXPECT_TRUE(fn::attention(q, k, k, {.causal = true, .window = 200}).equal(whole));
    EXPECT_TRUE(fn::attention(q, k, k, {.causal = true, .window = 4096}).equal(whole));
  }
}

TEST(WindowAttention, BandsCoverWhatIsSeenAndLittleElse) {
  for (const int64_t tokens : {1, 63, 64, 65, 1000}) {
    for (const int64_t window : {1, 2, 64, 100, 999}) {
      int64_t next = 0;
      for (const auto& band : fn::bands_of(tokens, window, 64)) {
        EXPECT_EQ(band.query, next);
        EXPECT_EQ(band.key, std::max<int64_t>(0, band.query - window + 1));
        EXPECT_EQ(band.key + band.keys, band.query + band.queries);
        EXPECT_LE(band.keys, 64 + window - 1);
        next += band.queries;
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

/// What a row has said before its window is not looked at: it may be anything.
TEST(WindowAttention, ACacheIsReadFromItsFirstKeyOn) {
  for (const auto& [dtype, dim] : {std::pair{at::kFloat, 64}, {at::kBFloat16, 64}, {at::kDouble, 16}}) {
    Tensor keys = window_heads(1, 40, 2, dim, "k").select(0, 0).to(dtype).contiguous();
    Tensor values = window_heads(1, 40, 2, dim, "v").select(0, 0).to(dtype).contiguous();
    const Tensor q = window_heads(1, 1, 4, dim, "q").to(dtype);
    const Tensor late_keys = keys.narrow(1, 20, 15).contiguous(), late_values = values.narrow(1, 20, 15).contiguous();
    keys.narrow(1, 0, 20).fill_(1e4);
    values.narrow(1, 0, 20).fill_(std::nan(""));
    const std::vector<fn::CachedRow> whole{{&keys, &values, 35, 20}}, late{{&late_keys, &late_values, 15}};
    EXPECT_TRUE(fn::cached_attention(q, whole).equal(fn::cached_attention(q, late)));
  }
}

}  // namespace
}  // namespace lockstep
