#include <numeric>
#include <utility>

#include "lockstep/data/loader.h"
#include "lockstep/data/random.h"

namespace lockstep {

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  SplitMix64 random(seed, static_cast<uint64_t>(epoch));
  for (int64_t i = size - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
  }
  return order;
}

}  // namespace lockstep
