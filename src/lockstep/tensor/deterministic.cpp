// Source: PyTorch's notes on reproducibility; cuBLAS, "Results Reproducibility".
#include "lockstep/tensor/deterministic.h"

#include <cstdlib>

#include <ATen/Context.h>

namespace lockstep {

void compute_deterministically() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // for finding errors: every new tensor would be filled first
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace lockstep
