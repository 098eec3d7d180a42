// One more token for all rows of a cache at once on a GPU, beside the CPU's row by row.
#include <random>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/model/kv_cache.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/kernels.h"

namespace lockstep {
namespace {

using fake_gpu::ThreadsOfBlock;

struct Shape {
  int64_t heads, kv_heads, dim;
};

/// Prompts of so many tokens in a slot each (0: none is there), then `steps` tokens more; of each step what is seen.
std::vector<at::Tensor> seen_by(const at::Device& device, const Shape& shape, at::ScalarType dtype,
                                const std::vector<int64_t>& prompts, int64_t window, int steps) {
  // What a slot is given is its own, whoever stands beside it.
  constexpr int64_t kMostSlots = 8;
  int seed = 0;
  const auto drawn = [&](int64_t rows, int64_t heads, int64_t tokens) {
    at::Generator numbers = at::globalContext().defaultGenerator(at::kCPU);  // a fake GPU has none
    numbers.set_current_seed(static_cast<uint64_t>(++seed));
    return at::randn({rows, heads, tokens, shape.dim}).to(dtype);
  };
  const auto of_slots = [&](int64_t heads) {
    return drawn(kMostSlots, heads, 1).narrow(0, 0, std::ssize(prompts)).contiguous().to(device);
  };
  KvCache cache(2, std::ssize(prompts));
  for (int64_t slot = 0; slot < cache.slots(); ++slot) {
    const int64_t tokens = prompts[static_cast<size_t>(slot)];
    if (tokens > 0) cache.open(slot, tokens + 2);  // outgrown in the third step
    for (int64_t layer = 0; layer < 2; ++layer) {
      const at::Tensor k = drawn(1, shape.kv_heads, 1000), v = drawn(1, shape.kv_heads, 1000);
      const auto said = [&](const at::Tensor& x) { return x.narrow(2, 0, tokens).contiguous().to(device); };
      if (tokens > 0) cache.write(layer, slot, said(k), said(v));
    }
    if (tokens > 0) cache.start(slot);
  }
  std::vector<at::Tensor> seen;
  for (int step = 0; step < steps; ++step) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      seed = 1000 * (step + 1) + 10 * static_cast<int>(layer);
      const at::Tensor q = of_slots(shape.heads), k = of_slots(shape.kv_heads), v = of_slots(shape.kv_heads);
      seen.push_back(cache.step(layer, q, k, v, window).cpu().to(at::kDouble));
    }
    if (step == 1) cache.close(0);  // its place is empty from now on
  }
  return seen;
}

class HeldRowsOnGpu : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { FakeGpu::install(4); }
  void TearDown() override { fake_gpu::play_blocks(ThreadsOfBlock::kOne); }

  static void compare(const Shape& shape, const std::vector<int64_t>& prompts, int64_t window) {
    const auto here = seen_by(at::kCPU, shape, GetParam(), prompts, window, 4);
    const auto there = seen_by(FakeGpu::device(1), shape, GetParam(), prompts, window, 4);
    const double bar = GetParam() == at::kFloat ? 2e-6 : GetParam() == at::kHalf ? 1e-3 : 8e-3;
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(there[i].allclose(here[i], bar, bar))
          << fmt::format("{} heads, {} of keys, {} wide, window {}, call {}: {}", shape.heads, shape.kv_heads,
                         shape.dim, window, i, there[i].sub(here[i]).abs().max().item<double>());
    }
  }
};

TEST_P(HeldRowsOnGpu, SeeWhatTheCpuSees) {
  for (const Shape& shape : {Shape{14, 2, 64}, Shape{20, 2, 8}, Shape{4, 4, 12}, Shape{3, 1, 80}, Shape{2, 1, 256}}) {
    for (const int64_t window : {0, 3, 300}) compare(shape, {5, 0, 1, 254, 255, 256, 600}, window);
    compare(shape, {1, 9}, 0);  // one part
  }
}

TEST_P(HeldRowsOnGpu, SeeTheSameBesideOthers) {
  const Shape shape{6, 2, 16};
  const auto on_gpu = [&](const std::vector<int64_t>& prompts) {
    return seen_by(FakeGpu::device(1), shape, GetParam(), prompts, 0, 2);
  };
  const auto alone = on_gpu({0, 300}), beside = on_gpu({700, 300, 20, 256});
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(alone[i].select(0, 1).equal(beside[i].select(0, 1))) << "call " << i;
    EXPECT_TRUE(alone[i].select(0, 0).eq(0).all().item<bool>()) << "no row is there";
  }
}

/// Heads that are cut and turned in the kernel are those that are before: the same bits.
TEST_P(HeldRowsOnGpu, TurnWhatATokenBrings) {
  at::Generator numbers = at::globalContext().defaultGenerator(at::kCPU);
  numbers.set_current_seed(20261128);
  for (const Shape& shape : {Shape{14, 2, 64}, Shape{4, 4, 6}, Shape{20, 1, 80}}) {
    for (const int64_t tables : {1, 3}) {
      const at::Device device = FakeGpu::device(1);
      const fn::HeadCounts counts{shape.heads, shape.kv_heads, shape.dim};
      const int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.dim;
      const auto drawn = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(GetParam()).to(device); };
      KvCache fused(1, 3), split(1, 3);
      for (const int64_t slot : {0, 2}) {
        const at::Tensor k = drawn({1, shape.kv_heads, 300 * slot + 5, shape.dim}), v = drawn(k.sizes());
        for (KvCache* cache : {&fused, &split}) {
          cache->open(slot, 400);
          cache->write(0, slot, k, v);
          cache->start(slot);
        }
      }
      for (int step = 0; step < 3; ++step) {
        const at::Tensor qkv = drawn({3, 1, width}), angles = at::rand({tables, 1, shape.dim / 2}).mul(6);
        const at::Tensor whole = at::cat({angles, angles}, -1), cos = whole.cos().to(device),
                         sin = whole.sin().to(device);
        const auto [q, k, v] = fn::split_heads(qkv, cos, sin, counts, false);
        const at::Tensor expected = split.step(0, q, k, v).cpu();
        EXPECT_TRUE(fused.step(0, {qkv, cos, sin, counts}).cpu().equal(expected)) << shape.dim << ", step " << step;
      }
    }
  }
}

TEST_P(HeldRowsOnGpu, AreOneKernelHoweverManyTheyAre) {
  const auto launches = [&](const std::vector<int64_t>& prompts) {
    const auto of_steps = [&](int steps) {
      const auto before = FakeGpu::counts().launches;
      seen_by(FakeGpu::device(1), {6, 2, 16}, GetParam(), prompts, 0, steps);
      return FakeGpu::counts().launches - before;
    };
    return of_steps(2) - of_steps(1);
  };
  constexpr int64_t kOfTheTest = 4;  // q, k and v go there, and what is seen comes back
  EXPECT_EQ(launches({40, 9}), 2 * (kOfTheTest + 1));
  EXPECT_EQ(launches({40, 9, 8, 7, 6, 5, 4}), 2 * (kOfTheTest + 1));
  EXPECT_EQ(launches({400, 9, 8, 7, 6, 5, 4}), 2 * (kOfTheTest + 2)) << "a long row's parts are joined";
}

TEST_P(HeldRowsOnGpu, SeeTheSameWhicheverThreadIsFirst) {
  for (const Shape& shape : {Shape{7, 1, 64}, Shape{4, 2, 12}}) {
    for (const auto by : {ThreadsOfBlock::kFirstFirst, ThreadsOfBlock::kLastFirst}) {
      fake_gpu::play_blocks(by);
      compare(shape, {3, 300}, 0);
      compare(shape, {200, 1}, 100);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, HeldRowsOnGpu, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace
}  // namespace lockstep
