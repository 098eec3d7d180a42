#include "lockstep/state/buffer_pool.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(BufferPool, CountsWhatIsAliveAndItsPeak) {
  BufferPool pool("cpu");
  {
    const Tensor one = pool.take(1024, Dtype::kF32);
    EXPECT_EQ(pool.alive_bytes(), 4096);
    const Tensor two = pool.take(2048, Dtype::kBF16);
    EXPECT_EQ(pool.alive_bytes(), 8192);
  }
  EXPECT_EQ(pool.alive_bytes(), 0);
  EXPECT_EQ(pool.peak_bytes(), 8192);
  pool.reset_peak();
  EXPECT_EQ(pool.peak_bytes(), 0);
}

TEST(BufferPool, ViewsOfADroppedBufferAreValidAgainWhenItIsRefilled) {
  BufferPool pool("cpu");
  const Tensor flat = pool.take(64, Dtype::kF32);
  const Tensor view = flat.narrow(0, 16, 8);
  BufferPool::drop(flat);
  EXPECT_EQ(pool.alive_bytes(), 0);
  pool.refill(flat);
  flat.fill_(3.0);
  EXPECT_EQ(view.sum().item<float>(), 24.0F);
}

TEST(BufferPool, ATensorMayOutliveItsPool) {
  Tensor kept;
  {
    BufferPool pool("cpu");
    kept = pool.take(16, Dtype::kF32).fill_(2.0);
  }
  EXPECT_EQ(kept.sum().item<float>(), 32.0F);
}

}  // namespace
}  // namespace lockstep
