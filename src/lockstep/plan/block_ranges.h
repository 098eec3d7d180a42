// What every contiguous range of blocks needs on one device, ready to be looked up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/plan/block_cost.h"

namespace lockstep {

/// Of blocks [begin, end); ranges [i, j) count from `begin`. Takes blocks^2 steps and numbers.
class BlockRanges {
 public:
  BlockRanges(std::span<const BlockCost> costs, int begin, int end, bool count_movable);

  /// At the peak, with so many micro-batches in flight.
  int64_t bytes(size_t i, size_t j, int in_flight) const {
    return fixed_[i * (size_ + 1) + j] + in_flight * (saved_[j] - saved_[i]);
  }
  size_t size() const { return size_; }

 private:
  void fill_end(std::span<const BlockCost> costs, int begin, size_t j, bool count_movable);

  size_t size_;
  std::vector<int64_t> fixed_, saved_;
};

}  // namespace lockstep
