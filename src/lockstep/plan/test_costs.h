// Costs for tests of device maps: a few written down, and random ones.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "lockstep/plan/block_cost.h"

namespace lockstep {

/// Blocks of these sizes that hold nothing but state.
inline std::vector<BlockCost> plain_costs(const std::vector<int64_t>& sizes) {
  std::vector<BlockCost> costs;
  for (const int64_t size : sizes) costs.push_back({.block = "b" + std::to_string(costs.size()), .state = size});
  return costs;
}

/// Small numbers, so that ties are frequent; the last block often reads the first one's weights.
inline std::vector<BlockCost> random_costs(std::mt19937_64& random, int count, bool movable) {
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  std::vector<BlockCost> costs;
  for (int i = 0; i < count; ++i) {
    const int64_t size = 1 + below(9);
    costs.push_back({.block = "b" + std::to_string(i),
                     .state = size,
                     .movable = movable ? below(3) * size : 0,
                     .saved = below(4),
                     .work = below(6)});
  }
  if (count > 1 && below(2) == 0) {
    costs.back().tied_to = 0;
    costs.back().tied = 1 + below(costs[0].state);
  }
  return costs;
}

}  // namespace lockstep
