#include "lockstep/guard/rank_set.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace lockstep {

RankSet::RankSet(std::initializer_list<int> ranks) {
  for (const int rank : ranks) add(rank);
}

RankSet RankSet::of_bits(std::span<const uint64_t> words) {
  RankSet out;
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint64_t left = words[word]; left != 0; left &= left - 1) {
      out.add(static_cast<int>(word * 64) + std::countr_zero(left));
    }
  }
  return out;
}

void RankSet::add_stretch(int first, int last) {
  auto at = std::lower_bound(stretches_.begin(), stretches_.end(), first,
                             [](const auto& range, int rank) { return range.second < rank - 1; });
  auto end = at;
  for (; end != stretches_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
  }
  at = stretches_.erase(at, end);
  stretches_.insert(at, {first, last});
}

void RankSet::add(const RankSet& other) {
  for (const auto& [first, last] : other.stretches_) add_stretch(first, last);
}

int RankSet::size() const {
  int total = 0;
  for (const auto& [first, last] : stretches_) total += last - first + 1;
  return total;
}

bool RankSet::contains(int rank) const {
  const auto at = std::lower_bound(stretches_.begin(), stretches_.end(), rank,
                                   [](const auto& range, int wanted) { return range.second < wanted; });
  return at != stretches_.end() && at->first <= rank;
}

RankSet RankSet::within(const RankSet& other) const {
  RankSet out;
  for (const auto& [first, last] : stretches_) {
    for (const auto& [their_first, their_last] : other.stretches_) {
      if (their_first <= last && first <= their_last)
        out.add_stretch(std::max(first, their_first), std::min(last, their_last));
    }
  }
  return out;
}

std::vector<int> RankSet::ranks() const {
  std::vector<int> all;
  for (const auto& [first, last] : stretches_) {
    for (int rank = first; rank <= last; ++rank) all.push_back(rank);
  }
  return all;
}

std::string RankSet::text() const {
  std::string out;
  for (const auto& [first, last] : stretches_) {
    if (!out.empty()) out += ", ";
    out +=
        first == last ? fmt::format("{}", first) : fmt::format("{}{}{}", first, last == first + 1 ? ", " : "-", last);
  }
  return out;
}

std::string RankSet::phrase() const { return fmt::format("rank{} {}", size() == 1 ? "" : "s", text()); }

}  // namespace lockstep
