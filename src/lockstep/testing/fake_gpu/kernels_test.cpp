// The program's own kernels for GPUs, compiled for the host, beside what the CPU computes: sizes that are read 16 bytes at a
// time and others, every dtype.
#include "lockstep/testing/fake_gpu/kernels.h"

#include <array>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"

namespace lockstep {
namespace {

class GpuKernels : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    FakeGpu::install(4);
    at::Generator numbers = at::globalContext().defaultGenerator(at::kCPU);  // a fake GPU has none
    numbers.set_current_seed(20261126);
  }
  static at::ScalarType dtype() { return GetParam(); }
  static at::Tensor there(const at::Tensor& x) { return x.to(FakeGpu::device(1)); }
  at::Tensor drawn(at::IntArrayRef shape) const { return at::randn(shape).to(dtype()); }
  /// Of a number that is rounded once; what it is compared with is rounded too.
  static double bar() { return dtype() == at::kFloat ? 2e-6 : dtype() == at::kHalf ? 1e-3 : 8e-3; }
  static void expect_near(const at::Tensor& found, const at::Tensor& expected, const std::string& where) {
    const at::Tensor a = found.cpu().to(at::kDouble), b = expected.to(at::kDouble);
    ASSERT_EQ(a.sizes(), b.sizes()) << where;
    EXPECT_TRUE(a.allclose(b, bar(), bar())) << where << ": " << a.sub(b).abs().max().item<double>();
  }
};

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Results and gradients of a function there and here.
struct Both {
  std::vector<at::Tensor> there, here;
};
Both both_ways(const std::vector<at::Tensor>& inputs, const Function& function) {
  Both both;
  for (auto* side : {&both.there, &both.here}) {
    const at::Device device = side == &both.there ? at::Device(FakeGpu::device(1)) : at::Device(at::kCPU);
    std::vector<at::Tensor> leaves;
    for (const auto& x : inputs) {
      leaves.push_back(x.to(device).detach());
      if (x.is_floating_point() && x.dim() > 1) leaves.back().requires_grad_();
    }
    const auto made = function(leaves);
    std::vector<at::Tensor> outputs, wanted, weights;
    for (const auto& y : made) {
      side->push_back(y.detach().cpu());
      if (!y.requires_grad()) continue;
      outputs.push_back(y);
      const at::Tensor flat = at::arange(y.numel(), at::kFloat).mul(0.37).sin();  // the same on both sides
      weights.push_back(flat.view(y.sizes()).to(y.scalar_type()).to(device));
    }
    for (const auto& x : leaves) {
      if (x.requires_grad()) wanted.push_back(x);
    }
    for (const auto& grad : torch::autograd::grad(outputs, wanted, weights)) side->push_back(grad.cpu());
  }
  return both;
}

TEST_P(GpuKernels, GateAsTheCpuDoes) {
  for (const int64_t dim : {1, 3, 8, 24, 250, 4096}) {
    const Both both =
        both_ways({drawn({2, 3, 2 * dim})}, [](const auto& x) { return std::vector<at::Tensor>{fn::swiglu(x[0])}; });
    for (size_t i = 0; i < both.here.size(); ++i) expect_near(both.there[i], both.here[i], std::to_string(dim));
  }
}

TEST_P(GpuKernels, TurnHeadsAsTheCpuDoes) {
  for (const int64_t dim : {2, 6, 16, 64}) {
    for (const int64_t tables : {1, 2}) {
      const fn::HeadCounts counts{6, 2, dim};
      const at::Tensor angles = at::rand({tables, 5, dim / 2}).mul(6.0);
      const at::Tensor whole = at::cat({angles, angles}, -1);
      const Both both = both_ways({drawn({2, 5, (6 + 2 * 2) * dim})}, [&](const auto& x) {
        const auto at_home = [&](const at::Tensor& table) { return table.to(x[0].device()); };
        const auto [q, k, v] = fn::split_heads(x[0], at_home(whole.cos()), at_home(whole.sin()), counts, false);
        return std::vector<at::Tensor>{q, k, v};
      });
      const std::string where = std::to_string(dim) + ", tables " + std::to_string(tables);
      for (size_t i = 0; i < both.here.size(); ++i) expect_near(both.there[i], both.here[i], where);
    }
  }
}

TEST_P(GpuKernels, AddAndNormAsTheCpuDoes) {
  using fake_gpu::ThreadsOfBlock;
  const at::NoGradGuard no_grad;
  for (const int64_t dim : {1, 3, 8, 250, 3584}) {
    const at::Tensor x = drawn({3, 1, dim}), y = drawn({3, 1, dim}), w = drawn({dim});
    const auto [sum, normed] = fn::add_and_norm(x, y, w, 1e-6);
    for (const auto by : {ThreadsOfBlock::kOne, ThreadsOfBlock::kFirstFirst, ThreadsOfBlock::kLastFirst}) {
      fake_gpu::play_blocks(by);
      const auto before = FakeGpu::counts().launches;
      const at::Tensor x_there = there(x), y_there = there(y), w_there = there(w);
      const auto copies = FakeGpu::counts().launches - before;
      const auto [sum_there, normed_there] = fn::add_and_norm(x_there, y_there, w_there, 1e-6);
      EXPECT_EQ(FakeGpu::counts().launches - before, copies + 1);
      fake_gpu::play_blocks(ThreadsOfBlock::kOne);
      EXPECT_TRUE(sum_there.cpu().equal(sum)) << dim;
      expect_near(normed_there, normed, std::to_string(dim));
      EXPECT_TRUE(x_there.cpu().equal(x)) << "what comes in stays";
    }
  }
}

TEST_P(GpuKernels, AddAProductWhereTheSumStands) {
  const at::NoGradGuard no_grad;
  const at::Tensor sum = drawn({2, 1, 24}), x = drawn({2, 1, 8}), w = drawn({24, 8});
  const at::Tensor kept = sum.clone(), here = fn::add_linear(sum, x, w);
  EXPECT_TRUE(sum.equal(kept)) << "a CPU has it made beside";
  expect_near(fn::add_linear(there(sum), there(x), there(w)), here, "a sum");
}

TEST_P(GpuKernels, JudgeRowsOfLogitsAsTheCpuDoes) {
  for (const int64_t vocab : {1, 5, 8, 1000, 1001}) {
    at::Tensor targets = at::randint(vocab, {9}, at::kLong);
    targets.narrow(0, 3, 2).fill_(-100);
    at::Tensor hidden = drawn({9, 16}).mul(4);
    hidden.select(0, 1).zero_();  // all logits are equal: the first of them counts
    targets.select(0, 1).fill_(0);
    for (const int64_t chunk : {2, 512}) {
      const Both both = both_ways({hidden, drawn({vocab, 16}), targets}, [&](const auto& x) {
        const auto [loss, hits] = fn::chunked_cross_entropy(x[0], x[1], x[2], 0.125, chunk);
        return std::vector<at::Tensor>{loss, hits};
      });
      const std::string where = "vocabulary " + std::to_string(vocab) + ", chunk " + std::to_string(chunk);
      EXPECT_EQ(both.there[1].item<int64_t>(), both.here[1].item<int64_t>()) << where;
      for (size_t i = 0; i < both.here.size(); ++i) expect_near(both.there[i], both.here[i], where);
    }
  }
}

/// All threads of a block, in both orders.
TEST_P(GpuKernels, JudgeRowsWithThreadsThatMeet) {
  const at::Tensor logits = drawn({3, 3001}).mul(3);
  const at::Tensor targets = at::randint(3001, {3}, at::kLong);
  std::vector<std::array<at::Tensor, 3>> found;
  using fake_gpu::ThreadsOfBlock;
  for (const auto by : {ThreadsOfBlock::kOne, ThreadsOfBlock::kFirstFirst, ThreadsOfBlock::kLastFirst}) {
    const at::Tensor x = there(logits.clone()), losses = there(at::empty({3}, at::kDouble)),
                     hits = there(at::empty({3}, at::kByte));
    fake_gpu::play_blocks(by);
    gpu::cross_entropy(x, there(targets), losses, hits, 0.5, /*grads=*/true);
    found.push_back({x.cpu(), losses.cpu(), hits.cpu()});
    fake_gpu::play_blocks(ThreadsOfBlock::kOne);
  }
  for (size_t i = 1; i < found.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) expect_near(found[i][k], found[0][k], std::to_string(i) + ": " + std::to_string(k));
  }
}

TEST_P(GpuKernels, LeaveOutRowsThatDoNotCount) {
  constexpr int64_t kRows = 200, kCounted = 10;
  at::Tensor targets = at::full({kRows}, -100, at::kLong);
  targets.narrow(0, 50, kCounted).copy_(at::randint(33, {kCounted}, at::kLong));
  at::Tensor hidden = drawn({kRows, 8});
  const at::Tensor w = drawn({33, 8});
  const auto [expected, hits] = fn::chunked_cross_entropy(hidden, w, targets, 1.0, 512);
  hidden.narrow(0, 150, 50).fill_(std::numeric_limits<double>::quiet_NaN());  // whoever multiplies by them shows it
  const at::Tensor x = there(hidden).requires_grad_(), head = there(w).requires_grad_();
  const auto [loss, found] = fn::chunked_cross_entropy(x, head, targets, 1.0, 512);  // the targets stay on the host
  expect_near(loss.detach(), expected, "loss");
  EXPECT_EQ(found.item<int64_t>(), hits.item<int64_t>());
  const auto grads = torch::autograd::grad({loss}, {x, head});
  EXPECT_TRUE(grads[0].cpu().isfinite().all().item<bool>());
  EXPECT_TRUE(grads[1].cpu().isfinite().all().item<bool>());
}

TEST_P(GpuKernels, AHeadOfNumbersThatAreNoneHasNoLoss) {
  at::Tensor hidden = drawn({2, 8});
  hidden.select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto [loss, hits] =
      fn::chunked_cross_entropy(there(hidden), there(drawn({33, 8})), there(at::ones({2}, at::kLong)), 1.0, 512);
  EXPECT_TRUE(std::isnan(loss.item<float>()));
}

TEST_P(GpuKernels, SumGradients) {
  for (const int64_t count : {1, 7, 8, 64, 1000}) {
    for (const int64_t skipped : {0, 1, 4, 8}) {  // what is read 16 bytes at a time must begin at such a place
      const at::Tensor x = drawn({count + skipped}), sum = at::randn({count + skipped});
      const at::Tensor gpu_x = there(x).narrow(0, skipped, count), gpu_sum = there(sum);
      gpu::accumulate(gpu_sum.narrow(0, skipped, count), gpu_x, /*adds=*/true);
      const at::Tensor expected = sum.clone();
      expected.narrow(0, skipped, count).add_(x.narrow(0, skipped, count));
      EXPECT_TRUE(gpu_sum.cpu().equal(expected)) << count << " behind " << skipped;
      gpu::accumulate(gpu_sum.narrow(0, skipped, count), gpu_x, /*adds=*/false);
      expected.narrow(0, skipped, count).copy_(x.narrow(0, skipped, count));
      EXPECT_TRUE(gpu_sum.cpu().equal(expected)) << count << " behind " << skipped;
    }
  }
}

TEST_P(GpuKernels, SumAFewGradientsInOneLaunch) {
  for (const int64_t odd : {0, 3}) {
    for (size_t few = 1; few <= gpu::kFewSums; ++few) {
      for (const bool adds : {false, true}) {
        std::vector<at::Tensor> sums, xs, expected;
        for (size_t i = 0; i < few; ++i) {
          const int64_t count = std::array{600, 8, 264, 16}.at(i) + odd;
          xs.push_back(drawn({count}));
          sums.push_back(there(at::randn({count})));
          expected.push_back(sums[i].cpu().mul(adds ? 1.0 : 0.0).add(xs[i]));
          xs[i] = there(xs[i]);
        }
        const auto before = FakeGpu::counts().launches;
        gpu::accumulate(sums, xs, adds);
        EXPECT_EQ(FakeGpu::counts().launches - before, 1);
        for (size_t i = 0; i < few; ++i) EXPECT_TRUE(sums[i].cpu().equal(expected[i])) << i << " of " << few;
      }
    }
  }
}

TEST_P(GpuKernels, DropTheSameNumbersAsTheCpu) {
  const std::vector<uint64_t> keys{7, ~uint64_t{0}, 12345};
  for (const int64_t width : {8, 13}) {
    const at::Tensor x = drawn({3, 5, width});
    EXPECT_TRUE(fn::dropout(there(x), 0.3, keys).cpu().equal(fn::dropout(x, 0.3, keys))) << width;
  }
}

TEST_P(GpuKernels, UpdateAsTorchDoes) {
  for (const int64_t count : {5, 64, 1000}) {
    const at::Tensor master = at::randn({count}), grad = at::randn({count}), m = at::randn({count}).mul(0.1);
    const at::Tensor v = at::rand({count}).mul(0.01);
    const at::Tensor weights = at::empty({count}, dtype());
    const auto on_gpu = std::array<at::Tensor, 5>{there(weights), there(master), there(grad), there(m), there(v)};
    gpu::adamw(on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3], on_gpu[4],
               {.rate = 3e-3, .decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .divisor = 4, .updates = 3});
    at::_fused_adamw_({master}, {grad}, {m}, {v}, {}, {at::full({}, 3.0)}, 3e-3, 0.9, 0.95, 0.1, 1e-8, false, false,
                      at::full({}, 4.0));
    for (const auto& [found, expected] : {std::pair{on_gpu[1], master}, {on_gpu[3], m}, {on_gpu[4], v}}) {
      EXPECT_TRUE(found.cpu().allclose(expected, 1e-5, 1e-6)) << count;
    }
    EXPECT_TRUE(on_gpu[0].cpu().equal(on_gpu[1].cpu().to(dtype()))) << "rounded as LibTorch does, " << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GpuKernels, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& one) { return std::string(at::toString(one.param)); });

}  // namespace
}  // namespace lockstep
