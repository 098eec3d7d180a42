// Which two tokens merge into which, and how early. An open-addressing table, because encoding is mostly lookups here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

struct Merge {
  int32_t rank = -1;  // lower merges first; -1: the two do not merge
  int32_t result = -1;
};

class MergeTable {
 public:
  explicit MergeTable(size_t num_merges);
  /// A pair given twice keeps the later entry.
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_;
};

/// Merges `ids` in place until no two neighbours merge: the lowest rank first, the leftmost among equals.
void merge_all(const MergeTable& table, std::vector<int32_t>& ids);

/// Two neighbours that could merge, and into what.
using SeePair = std::function<void(int32_t left, int32_t right, int32_t result)>;
/// As merge_all; `see` is told of every pair when the two become neighbours, the leftmost first.
void merge_all(const MergeTable& table, std::vector<int32_t>& ids, const SeePair& see);

}  // namespace lockstep
