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

}  // namespace
}  // namespace lockstep
