// A set of ranks as sorted ranges: ten thousand ranks that do the same are one of them.
//
// Example:
//   RankSet ranks{0, 1, 2, 5};
//   ranks.text();   // "0-2, 5"
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class RankSet {
 public:
  RankSet() = default;
  RankSet(std::initializer_list<int> ranks);
  /// Bit r % 64 of word r / 64 is rank r.
  static RankSet of_bits(std::span<const uint64_t> words);

  void add(int rank) { add_stretch(rank, rank); }
  void add(const RankSet& other);
  void add_stretch(int first, int last);  // both included

  bool empty() const { return stretches_.empty(); }
  int size() const;
  bool contains(int rank) const;
  RankSet within(const RankSet& other) const;  // ranks that both have
  int first() const { return stretches_.front().first; }
  std::vector<int> ranks() const;
  const std::vector<std::pair<int, int>>& ranges() const { return stretches_; }

  std::string text() const;    // "0-2, 5"
  std::string phrase() const;  // "rank 5", "ranks 0-2, 5"
  bool operator==(const RankSet&) const = default;

 private:
  std::vector<std::pair<int, int>> stretches_;  // sorted, apart from each other
};

}  // namespace lockstep
