// The same bits from the same work, on GPUs too.
//
// Example:
//   const DeterministicOps same;   // before anything is computed on a GPU
#pragma once

namespace lockstep {

/// For the whole process, as long as one of them is there; then LibTorch's settings are again what they were. An op whose only kernel
/// on a GPU adds in an order of its own is refused meanwhile, with LibTorch's words. On the CPU, and in sums over ranks, nothing
/// changes: they have one order. CUBLAS_WORKSPACE_CONFIG, which cuBLAS reads once, stays set.
class [[nodiscard]] DeterministicOps {
 public:
  DeterministicOps();
  ~DeterministicOps();
  DeterministicOps(const DeterministicOps&) = delete;
  DeterministicOps& operator=(const DeterministicOps&) = delete;
};

}  // namespace lockstep
