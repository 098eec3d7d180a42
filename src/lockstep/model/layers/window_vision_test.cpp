// Windows, places and stretches by hand-made examples; the whole tower is held by recorded oracles
// (zoo/oracle_test.cpp).
#include "lockstep/model/layers/window_vision.h"

#include <random>

#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/model/layers/axis_rope.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

TEST(WindowOrder, TakesWindowsRowByRowAndCutsThemAtTheEdge) {
  // Tokens 0 1 2 / 3 4 5 / 6 7 8 in windows of 2 x 2.
  const WindowOrder order = window_order({{1, 6, 6}}, 2, 2);
  EXPECT_EQ(order.tokens, (Ints{0, 1, 3, 4, 2, 5, 6, 7, 8}));
  EXPECT_EQ(order.window_ends, (Ints{16, 24, 32, 36}));
  EXPECT_EQ(order.frame_ends, (Ints{36}));
}

TEST(WindowOrder, FramesAndMediaNeverShareAWindow) {
  const WindowOrder order = window_order({{2, 2, 4}, {1, 2, 2}}, 2, 4);
  EXPECT_EQ(order.tokens, (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(order.window_ends, (Ints{8, 16, 20}));
  EXPECT_EQ(order.frame_ends, (Ints{8, 16, 20}));
}

TEST(AxisRope, SectionsTakeTheAxesInTurn) {
  const RopeConfig rope{.inverse_frequencies = {1.0F, 0.5F, 0.25F, 0.125F}, .sections = {1, 2, 1}};
  const Tensor positions = from_values(std::span<const int64_t>(Ints{1, 2, 3, 4}), {2, 2});  // two axes, two tokens
  const auto [cos, sin] = axis_rope(positions, rope);
  ASSERT_EQ(cos.sizes(), at::IntArrayRef({2, 8}));
  const auto expected = [](double angle) { return std::cos(angle); };
  EXPECT_NEAR(cos[0][0].item<double>(), expected(1 * 1.0), 1e-6);
  EXPECT_NEAR(cos[0][1].item<double>(), expected(3 * 0.5), 1e-6);
  EXPECT_NEAR(cos[0][2].item<double>(), expected(3 * 0.25), 1e-6);
  EXPECT_NEAR(cos[0][3].item<double>(), expected(1 * 0.125), 1e-6);
  EXPECT_NEAR(sin[1][5].item<double>(), std::sin(4 * 0.5), 1e-6);
  EXPECT_TRUE(cos.narrow(1, 0, 4).equal(cos.narrow(1, 4, 4)));
}

/// The same attention with one mask over all rows.
Tensor masked(const Tensor& q, const Tensor& k, const Tensor& v, const Ints& ends) {
  const Tensor mask = zeros({1, 1, q.size(2), q.size(2)}, Dtype::kBool);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    mask.narrow(2, begin, end - begin).narrow(3, begin, end - begin).fill_(true);
    begin = end;
  }
  return fn::merge_heads(fn::attention(q, k, v, {.mask = &mask})).select(0, 0);
}

TEST(StretchAttention, EqualsAMaskOverAllRowsForwardAndBackward) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Ints ends;
    for (auto i = 1 + random() % 6; i > 0; --i) {
      const auto length = static_cast<int64_t>(1 + random() % 4 * 3), same = static_cast<int64_t>(1 + random() % 3);
      for (int64_t s = 0; s < same; ++s) ends.push_back((ends.empty() ? 0 : ends.back()) + length);
    }
    std::vector<Tensor> mine, theirs;
    for (int i = 0; i < 3; ++i) {
      mine.push_back(at::randn({1, 2, ends.back(), 16}).set_requires_grad(true));
      theirs.push_back(mine.back().detach().clone().set_requires_grad(true));
    }
    const Tensor weight = at::randn({ends.back(), 32});
    const auto column = from_values(std::span<const int64_t>(ends), {static_cast<int64_t>(ends.size())});
    const Tensor got = stretch_attention(mine[0], mine[1], mine[2], column);
    const Tensor wanted = masked(theirs[0], theirs[1], theirs[2], ends);
    EXPECT_LE(got.sub(wanted).abs().max().item<double>(), 1e-5);
    got.mul(weight).sum().backward();
    wanted.mul(weight).sum().backward();
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(mine[i].grad().sub(theirs[i].grad()).abs().max().item<double>(), 1e-4);
  }
}

}  // namespace
}  // namespace lockstep
