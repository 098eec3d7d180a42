#include "lockstep/tensor/deterministic.h"

#include <memory>

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Deterministic, IsWhatLibTorchKeepsToAsLongAsSomebodyWantsIt) {
  at::Context& context = at::globalContext();
  EXPECT_FALSE(context.deterministicAlgorithms());
  context.setBenchmarkCuDNN(true);
  auto one = std::make_unique<DeterministicOps>(), other = std::make_unique<DeterministicOps>();
  one.reset();
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.benchmarkCuDNN());
  other.reset();
  EXPECT_FALSE(context.deterministicAlgorithms());
  EXPECT_TRUE(context.deterministicFillUninitializedMemory());
  EXPECT_TRUE(context.benchmarkCuDNN());
  context.setBenchmarkCuDNN(false);
}

}  // namespace
}  // namespace lockstep
