// What adapters drop: which numbers, by whichever path, and what a rehearsal makes of it.
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/test_numbers.h"

namespace lockstep {
namespace {

using test::drawn;

/// Splitmix64 by its published steps: a state that grows, mixed.
uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// Which of `count` numbers stay.
std::vector<bool> kept_by(uint64_t key, int64_t count, double p) {
  std::vector<bool> kept;
  for (int64_t i = 0; i < count; ++i) {
    kept.push_back(static_cast<double>(splitmix64(key) >> 32) / 4294967296.0 >= p);
  }
  return kept;
}

TEST(Dropout, TheGeneratorOfTheseTestsIsSplitmix64) {
  uint64_t state = 0;
  EXPECT_EQ(splitmix64(state), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(splitmix64(state), 0x6E789E6AA1B965F4ULL);
  EXPECT_EQ(splitmix64(state), 0x06C45D188009454FULL);
}

/// Float64 has no kernel of ours, as other devices have none: what is composed for them runs here.
TEST(Dropout, DropsWhatItsKeysSayByKernelsAndComposed) {
  const std::vector<uint64_t> keys{3, 0xFFFFFFFFFFFFFFF7ULL, 0x8000000000000000ULL};
  for (const double p : {0.05, 0.5, 0.9}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const Tensor x = at::ones({3, 7, 31}, dtype), y = fn::dropout(x, p, keys);
      ASSERT_EQ(y.scalar_type(), dtype);
      const double scale = at::ones({}, dtype).mul(1.0 / (1.0 - p)).item<double>();
      for (int64_t row = 0; row < 3; ++row) {
        const Tensor flat = y[row].flatten().to(at::kDouble).contiguous();
        const auto kept = kept_by(keys[static_cast<size_t>(row)], 7 * 31, p);
        for (int64_t i = 0; i < 7 * 31; ++i) {
          const double wanted = kept[static_cast<size_t>(i)] ? scale : 0.0;
          ASSERT_NEAR(flat.const_data_ptr<double>()[i], wanted, 4e-3 * scale)
              << at::toString(dtype) << ", p " << p << ", row " << row << ", number " << i;
        }
      }
    }
  }
}

TEST(Dropout, KernelsAndTheComposedPathKeepTheSameNumbers) {
  const Tensor x = drawn({4, 1000}, "x");
  const std::vector<uint64_t> keys{1, 2, 3, 4};
  for (const double p : {0.0, 0.05, 0.3, 0.999}) {
    const Tensor here = fn::dropout(x, p, keys), there = fn::dropout(x.to(at::kDouble), p, keys);
    EXPECT_TRUE(here.ne(0).equal(there.ne(0))) << p;
    EXPECT_LE(here.to(at::kDouble).sub(there).abs().max().item<double>(), 1e-6 * there.abs().max().item<double>()) << p;
  }
  EXPECT_TRUE(fn::dropout(x, 0.0, keys).equal(x));
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    EXPECT_EQ(fn::dropout(x.to(dtype), 1.0 - 1e-12, keys).count_nonzero().item<int64_t>(), 0) << "nothing stays";
  }
}

/// Of a dropout that is composed: the peak of its memory, and how many ops LibTorch was asked for.
struct Cost {
  int64_t bytes, ops;
};
Cost cost_of_dropout(const char* device, int64_t rows) {
  const auto memory = DeviceMemory::make(device, {.torch_device = device[0] == 'm' ? "meta" : "cpu"});
  const OnDevice scope(memory);
  const Tensor x = at::zeros({rows, 9, 13}, at::TensorOptions().dtype(at::kDouble).device(memory->torch_device()));
  std::vector<uint64_t> keys(static_cast<size_t>(rows));
  std::iota(keys.begin(), keys.end(), 1);
  thread_local int64_t ops = 0;
  const auto count = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
    ++ops;
    return nullptr;
  };
  ops = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  (void)fn::dropout(x, 0.1, keys);
  at::removeCallback(handle);
  return {memory->peak_bytes(), ops};
}

/// A plan looks for the largest batch: hundreds of rows, in every adapted module of every layer.
TEST(Dropout, IsRehearsedInAsManyOpsForAnyNumberOfRowsAndTheSameMemory) {
  for (const int64_t rows : {1, 2, 64}) {
    EXPECT_EQ(cost_of_dropout("meta", rows).bytes, cost_of_dropout("virtual:1", rows).bytes) << rows;
    EXPECT_EQ(cost_of_dropout("meta", rows).ops, cost_of_dropout("meta", 1).ops) << rows;
  }
}

TEST(Dropout, TheWayBackHasTheSameMask) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const std::vector<uint64_t> keys{77, 78};
    const Tensor x = drawn({2, 9, 13}, "x", dtype).requires_grad_(), g = drawn({2, 9, 13}, "g", dtype);
    const Tensor y = fn::dropout(x, 0.4, keys);
    const Tensor dx = torch::autograd::grad({y}, {x}, {g})[0];
    EXPECT_TRUE(dx.equal(fn::dropout(g, 0.4, keys)));
    EXPECT_TRUE(dx.ne(0).equal(y.ne(0)));
  }
}

TEST(Dropout, ARowIsTheSameWhateverStandsBesideIt) {
  const Tensor x = drawn({4, 6, 10}, "x");
  const std::vector<uint64_t> keys{10, 20, 30, 40};
  const Tensor all = fn::dropout(x, 0.3, keys);
  for (int64_t row = 0; row < 4; ++row) {
    const Tensor alone = fn::dropout(x.narrow(0, row, 1), 0.3, {keys[static_cast<size_t>(row)]});
    EXPECT_TRUE(alone.equal(all.narrow(0, row, 1))) << row;
  }
  EXPECT_TRUE(fn::dropout(x.narrow(0, 1, 2), 0.3, {20, 99}).narrow(0, 0, 1).equal(all.narrow(0, 1, 1)));
  EXPECT_FALSE(fn::dropout(x.narrow(0, 1, 1), 0.3, {21}).equal(all.narrow(0, 1, 1))) << "another key";
  // A row's end is padded to the longest of its batch, which moves nothing before it.
  EXPECT_TRUE(fn::dropout(x.narrow(0, 0, 1).narrow(1, 0, 3), 0.3, {10}).equal(all.narrow(0, 0, 1).narrow(1, 0, 3)));
}

TEST(Dropout, DropsAtItsRateAndKeepsTheMean) {
  constexpr int64_t kCount = 1 << 20;
  const Tensor x = at::ones({kCount});
  for (const double p : {0.05, 0.1, 0.5}) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{12345}, ~uint64_t{0}}) {
      const Tensor y = fn::dropout(x, p, {key});
      const double dropped = y.eq(0).sum().item<double>() / kCount;
      EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / kCount)) << "key " << key;
      EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.01);
    }
  }
}

}  // namespace
}  // namespace lockstep
