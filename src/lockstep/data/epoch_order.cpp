#include <algorithm>
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

std::vector<int64_t> buffered_order(int64_t size, int64_t buffer, uint64_t seed, int64_t epoch) {
  SplitMix64 random(seed, static_cast<uint64_t>(epoch));
  std::vector<int64_t> held, order;
  order.reserve(static_cast<size_t>(size));
  int64_t next = 0;
  for (; next < std::min(size, buffer); ++next) held.push_back(next);
  for (; next < size; ++next) {
    int64_t& one = held[static_cast<size_t>(random.below(buffer))];
    order.push_back(std::exchange(one, next));
  }
  for (auto left = std::ssize(held); left > 0; --left) {
    std::swap(held[static_cast<size_t>(random.below(left))], held[static_cast<size_t>(left - 1)]);
    order.push_back(held[static_cast<size_t>(left - 1)]);
  }
  return order;
}

}  // namespace lockstep
