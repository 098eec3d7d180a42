// Source: PyTorch's notes on reproducibility; cuBLAS, "Results Reproducibility".
#include "lockstep/tensor/deterministic.h"

#include <cstdlib>
#include <mutex>

#include <ATen/Context.h>

namespace lockstep {
namespace {

struct OrderSettings {
  bool algorithms, warn_only, fill, cudnn, benchmark;
};

OrderSettings order_settings() {
  const at::Context& context = at::globalContext();
  return {.algorithms = context.deterministicAlgorithms(),
          .warn_only = context.deterministicAlgorithmsWarnOnly(),
          .fill = context.deterministicFillUninitializedMemory(),
          .cudnn = context.deterministicCuDNN(),
          .benchmark = context.benchmarkCuDNN()};
}

void set_order(const OrderSettings& wanted) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(wanted.algorithms, wanted.warn_only);
  context.setDeterministicFillUninitializedMemory(wanted.fill);
  context.setDeterministicCuDNN(wanted.cudnn);
  context.setBenchmarkCuDNN(wanted.benchmark);
}

// LibTorch has one of these settings for a process, in which several models may want them.
std::mutex order_mutex;  // guards the other two
int order_wanted_by = 0;
OrderSettings order_before;

}  // namespace

DeterministicOps::DeterministicOps() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  const std::lock_guard lock(order_mutex);
  if (order_wanted_by++ > 0) return;
  order_before = order_settings();
  // Filling every new tensor first is for finding errors.
  set_order({.algorithms = true, .warn_only = false, .fill = false, .cudnn = true, .benchmark = false});
}

DeterministicOps::~DeterministicOps() {
  const std::lock_guard lock(order_mutex);
  if (--order_wanted_by == 0) set_order(order_before);
}

}  // namespace lockstep
