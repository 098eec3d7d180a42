#include "lockstep/plan/block_ranges.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

BlockRanges::BlockRanges(std::span<const BlockCost> costs, int begin, int end, bool count_movable)
    : size_(static_cast<size_t>(end - begin)), fixed_(size_ * (size_ + 1)), saved_(size_ + 1) {
  check(begin >= 0 && begin <= end && end <= static_cast<int>(costs.size()), "a range of the blocks");
  for (size_t i = 0; i < size_; ++i) saved_[i + 1] = saved_[i] + costs[static_cast<size_t>(begin) + i].saved;
  for (size_t j = 1; j <= size_; ++j) fill_end(costs, begin, j, count_movable);
}

/// All ranges that end at j, each from the one that begins a block later.
void BlockRanges::fill_end(std::span<const BlockCost> costs, int begin, size_t j, bool count_movable) {
  std::vector<int64_t> borrowed(costs.size(), 0);  // by owner: tied weights that stand here as a copy
  int64_t sum = 0, work = 0, tied = 0;
  const int end = begin + static_cast<int>(j);
  for (size_t i = j; i-- > 0;) {
    const int index = begin + static_cast<int>(i);
    const BlockCost& cost = costs[static_cast<size_t>(index)];
    sum += cost.state + (count_movable ? cost.movable : 0);
    work = std::max(work, cost.work);
    tied -= std::exchange(borrowed[static_cast<size_t>(index)], 0);  // the owner itself stands here now
    if (cost.tied_to >= 0 && (cost.tied_to < index || cost.tied_to >= end)) {
      int64_t& held = borrowed[static_cast<size_t>(cost.tied_to)];
      tied += std::max<int64_t>(0, cost.tied - held);
      held = std::max(held, cost.tied);
    }
    fixed_[i * (size_ + 1) + j] = sum + work + tied;
  }
}

}  // namespace lockstep
