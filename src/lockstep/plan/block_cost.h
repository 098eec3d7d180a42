// What one block costs on the device that runs it: numbers alone, from which device maps are made.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Bytes of one block. A device that runs blocks [i, j) with m micro-batches in flight needs at its peak
/// sum(state) + sum(movable) + m * sum(saved) + max(work), and `tied` once for each owner that stands elsewhere.
struct BlockCost {
  std::string block;
  int64_t state = 0;    // stays: parameters, gradients
  int64_t movable = 0;  // stays too, but may stand on any device: masters, optimizer
  int64_t saved = 0;    // kept from forward to backward, for each micro-batch in flight
  int64_t work = 0;     // at most, above all that, while it runs forward or backward
  int64_t tied = 0;     // weights of `tied_to` that it reads as well
  int tied_to = -1;     // index of the block that owns them
};

}  // namespace lockstep
