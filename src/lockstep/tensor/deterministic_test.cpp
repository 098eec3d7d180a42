#include "lockstep/tensor/deterministic.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Deterministic, IsWhatLibTorchKeepsTo) {
  at::Context& context = at::globalContext();
  EXPECT_FALSE(context.deterministicAlgorithms());
  compute_deterministically();
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  context.setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace lockstep
