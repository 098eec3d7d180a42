#include "lockstep/state/buffer_pool.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

BufferPool fresh_pool() { return BufferPool(DeviceMemory::make("test", {})); }

TEST(BufferPool, CountsWhatIsAliveByUse) {
  const BufferPool pool = fresh_pool();
  const Tensor one = pool.take(1024, Dtype::kF32, MemoryUse::kParams);
  const Tensor two = pool.take(2048, Dtype::kBF16, MemoryUse::kGradients);
  EXPECT_EQ(DeviceMemory::of(one), pool.memory());
  EXPECT_EQ(pool.memory()->figures().by_use[static_cast<size_t>(MemoryUse::kParams)], 4096);
  EXPECT_EQ(pool.memory()->figures().by_use[static_cast<size_t>(MemoryUse::kGradients)], 4096);
}

TEST(BufferPool, ViewsOfADroppedBufferAreValidAgainWhenItIsRefilled) {
  const BufferPool pool = fresh_pool();
  const Tensor flat = pool.take(64, Dtype::kF32, MemoryUse::kGathered);
  const Tensor view = flat.narrow(0, 16, 8);
  BufferPool::drop(flat);
  EXPECT_EQ(pool.memory()->alive_bytes(), 0);
  pool.refill(flat, MemoryUse::kGathered);
  flat.fill_(3.0);
  EXPECT_EQ(view.sum().item<float>(), 24.0F);
}

TEST(BufferPool, ATensorMayOutliveItsPool) {
  Tensor kept;
  {
    const BufferPool pool = fresh_pool();
    kept = pool.take_zeros(16, Dtype::kF32, MemoryUse::kParams).fill_(2.0);
  }
  EXPECT_EQ(kept.sum().item<float>(), 32.0F);
}

}  // namespace
}  // namespace lockstep
