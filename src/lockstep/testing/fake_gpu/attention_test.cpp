#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/devices.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"

namespace lockstep {
namespace {

struct Attended {
  at::Tensor out, dq, dk, dv;
  int64_t launches = 0;  // of the forward pass
};

Attended attend(const std::vector<int64_t>& ends, const at::Device& device, const std::array<at::Tensor, 3>& qkv,
                bool causal, int64_t window = 0) {
  const auto leaf = [&](const at::Tensor& x) { return x.to(device).detach().requires_grad_(true); };
  const at::Tensor q = leaf(qkv[0]), k = leaf(qkv[1]), v = leaf(qkv[2]);
  const at::Tensor row_ends = from_values(std::span<const int64_t>(ends), {static_cast<int64_t>(ends.size())});
  const auto before = FakeGpu::counts();
  const at::Tensor out = fn::attention(q, k, v, {.causal = causal, .window = window, .row_ends = &row_ends});
  const auto after = FakeGpu::counts();
  out.pow(2).sum().backward();
  return {out.detach().cpu(), q.grad().cpu(), k.grad().cpu(), v.grad().cpu(), after.launches - before.launches};
}

class RowsOnFakeGpu : public testing::TestWithParam<bool> {};

TEST_P(RowsOnFakeGpu, AreOneCallWhateverTheirLengths) {
  FakeGpu::install(4);
  constexpr int64_t kTokens = 14, kHeads = 4, kKvHeads = 2, kHeadSize = 8;
  const std::array<at::Tensor, 3> qkv{at::randn({1, kHeads, kTokens, kHeadSize}),
                                      at::randn({1, kKvHeads, kTokens, kHeadSize}),
                                      at::randn({1, kKvHeads, kTokens, kHeadSize})};
  int64_t launches = -1;
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{3, 14}, {1, 4, 5, 11, 14}, {2, 2, 4, 14}}) {
    const Attended cpu = attend(ends, at::kCPU, qkv, GetParam());
    const Attended gpu = attend(ends, FakeGpu::device(1), qkv, GetParam());
    const auto near = [](const at::Tensor& a, const at::Tensor& b) { return a.allclose(b, 1e-5, 1e-5); };
    EXPECT_TRUE(near(gpu.out, cpu.out));
    EXPECT_TRUE(near(gpu.dq, cpu.dq));
    EXPECT_TRUE(near(gpu.dk, cpu.dk));
    EXPECT_TRUE(near(gpu.dv, cpu.dv));
    if (launches < 0) launches = gpu.launches;
    EXPECT_EQ(gpu.launches, launches) << ends.size() << " rows";
  }
}

TEST(WindowsOnFakeGpu, HideWhatTheyHideOnTheCpu) {
  FakeGpu::install(4);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return a.allclose(b, 1e-5, 1e-5); };
  for (const int64_t head_size : {8, 12}) {  // of which flash attention takes the first
    for (const int64_t window : {1, 3, 40}) {
      const std::array<at::Tensor, 3> qkv{at::randn({1, 4, 30, head_size}), at::randn({1, 2, 30, head_size}),
                                          at::randn({1, 2, 30, head_size})};
      for (const std::vector<int64_t>& ends : {std::vector<int64_t>{30}, {2, 19, 30}, {10, 20, 30}}) {
        SCOPED_TRACE(testing::Message() << head_size << ", window " << window << ", rows " << ends.size());
        const Attended cpu = attend(ends, at::kCPU, qkv, true, window);
        const Attended gpu = attend(ends, FakeGpu::device(1), qkv, true, window);
        EXPECT_TRUE(near(gpu.out, cpu.out));
        EXPECT_TRUE(near(gpu.dq, cpu.dq));
        EXPECT_TRUE(near(gpu.dk, cpu.dk));
        EXPECT_TRUE(near(gpu.dv, cpu.dv));
      }
    }
  }
}

/// What LibTorch would do with them has all scores in memory: of 1024 tokens 16 MiB a row, beside 256 KiB of queries.
TEST(GroupsOnFakeGpu, AreNoMatterForWhatIsKept) {
  FakeGpu::install(4);
  constexpr int64_t kTokens = 1024, kHeads = 4, kScores = kHeads * kTokens * kTokens * 4;
  const std::array<at::Tensor, 3> qkv{at::randn({2, kHeads, kTokens, 16}), at::randn({2, 2, kTokens, 16}),
                                      at::randn({2, 2, kTokens, 16})};
  const auto attended = [&](const at::Device& device, at::ScalarType dtype) {
    std::vector<at::Tensor> leaves;
    for (const auto& x : qkv) leaves.push_back(x.to(device, dtype).detach().requires_grad_(true));
    const at::Tensor out = fn::attention(leaves[0], leaves[1], leaves[2], {.causal = true});
    out.sum().backward();
    return std::array<at::Tensor, 3>{out.detach().cpu().to(at::kFloat), leaves[0].grad().cpu().to(at::kFloat),
                                     leaves[1].grad().cpu().to(at::kFloat)};
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    reset_gpu_peak(FakeGpu::name(1));
    const int64_t before = gpu_memory(FakeGpu::name(1)).allocated_bytes;
    const auto gpu = attended(FakeGpu::device(1), dtype), cpu = attended(at::kCPU, at::kFloat);
    EXPECT_LT(gpu_memory(FakeGpu::name(1)).peak_allocated_bytes - before, kScores) << at::toString(dtype);
    if (dtype != at::kFloat) continue;
    for (size_t i = 0; i < gpu.size(); ++i) EXPECT_TRUE(gpu[i].allclose(cpu[i], 1e-4, 1e-4)) << i;
  }
}

/// Hollow tensors count what the device would hold.
TEST(GroupsOnFakeGpu, AreRehearsedAsTheyAreKept) {
  (void)DeviceMemory::host();  // from here on tensors are counted
  const auto rehearsed = Devices::rehearsed(1, {.rounding = kGpuRounding, .row_kernels = false}, false);
  const OnDevice scope(rehearsed.blocks.front());
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto hollow = [&](int64_t heads) {
      return at::empty({2, heads, 512, 16}, at::device(at::kMeta).dtype(dtype)).requires_grad_(true);
    };
    const at::Tensor q = hollow(4), k = hollow(2), v = hollow(2);
    const int64_t before = rehearsed.blocks.front()->alive_bytes();
    const at::Tensor out = fn::attention(q, k, v, {.causal = true});
    const auto bytes = [](const at::Tensor& x) { return static_cast<int64_t>(x.nbytes()); };
    const int64_t sums = 2 * 4 * 512 * 4, copies = dtype == at::kFloat ? 2 * (bytes(k) + bytes(v)) : 0;
    EXPECT_EQ(rehearsed.blocks.front()->alive_bytes() - before, bytes(out) + sums + copies) << at::toString(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Causal, RowsOnFakeGpu, testing::Bool());

}  // namespace
}  // namespace lockstep
