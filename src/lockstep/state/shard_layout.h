// All arithmetic of sharding, pure: who owns which elements of a flat buffer, and what overlaps what.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

/// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const Range&) const = default;
};

inline Range intersect(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

inline Range shifted(Range range, int64_t by) { return {range.begin + by, range.end + by}; }

/// `numel` elements padded to a multiple of world * align, cut into equal shards.
struct ShardLayout {
  int64_t numel = 0, padded = 0, shard = 0;

  static ShardLayout of(int64_t numel, int world, int64_t align) {
    const int64_t quantum = world * align;
    const int64_t padded = (numel + quantum - 1) / quantum * quantum;
    return {numel, padded, padded / world};
  }
  Range owned(int rank) const { return {rank * shard, (rank + 1) * shard}; }
};

}  // namespace lockstep
