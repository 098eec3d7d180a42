// What a collective call is, before any byte moves: the words of the flight ring, of every communication error, and
// later of the roll call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/tensor/spec.h"

namespace lockstep {

enum class Op : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduceSum,
  kAllReduceMax,
  kBroadcast,
  kAllGatherBytes,
  kBarrier
};
std::string_view op_name(Op op);

/// What must agree on all ranks. `numel` counts the elements of this rank's contribution.
struct CallSignature {
  Op op = Op::kBarrier;
  Dtype dtype = Dtype::kF32;
  int64_t numel = 0;
  int root = -1;

  uint64_t hash() const;
  std::string describe() const;  // "all_gather bf16[4096]"
};

}  // namespace lockstep
