#include "lockstep/text/merge_table.h"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

constexpr size_t kShortWord = 48;  // up to here a scan beats a heap

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

void merge_short(const MergeTable& table, std::vector<int32_t>& ids) {
  std::vector<Merge> merges(ids.size());  // merges[i]: of ids[i] and ids[i + 1]
  for (size_t i = 0; i + 1 < ids.size(); ++i) merges[i] = table.find(ids[i], ids[i + 1]);
  while (ids.size() > 1) {
    size_t best = ids.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (merges[i].rank >= 0 && (best == ids.size() || merges[i].rank < merges[best].rank)) best = i;
    }
    if (best == ids.size()) return;
    const auto at = static_cast<std::ptrdiff_t>(best);
    ids[best] = merges[best].result;
    ids.erase(ids.begin() + at + 1);
    merges.erase(merges.begin() + at);
    if (best > 0) merges[best - 1] = table.find(ids[best - 1], ids[best]);
    if (best + 1 < ids.size()) merges[best] = table.find(ids[best], ids[best + 1]);
  }
}

struct Node {
  int32_t id;              // -1: merged into its left neighbour
  int32_t previous, next;  // -1: none
  Merge merge;             // with the next
};

class LongWord {
 public:
  LongWord(const MergeTable& table, const std::vector<int32_t>& ids, const SeePair* see = nullptr)
      : table_(table), see_(see) {
    const auto size = static_cast<int32_t>(ids.size());
    nodes_.reserve(ids.size());
    queue_.reserve(ids.size());
    for (int32_t i = 0; i < size; ++i)
      nodes_.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1, {}});
    for (int32_t i = 0; i + 1 < size; ++i) {
      if (find(i)) queue_.push_back(candidate(i));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  void merge() {
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const uint64_t best = queue_.back();
      queue_.pop_back();
      const auto at = static_cast<int32_t>(best & UINT32_MAX);
      Node& left = node(at);
      if (left.merge.rank < 0 || candidate(at) != best) continue;  // a neighbour has changed since
      Node& right = node(left.next);
      left.id = left.merge.result;
      right.id = right.merge.rank = -1;
      left.next = right.next;
      if (left.next >= 0) node(left.next).previous = at;
      if (left.previous >= 0) offer(left.previous);
      offer(at);
    }
  }

  void write(std::vector<int32_t>& ids) const {
    ids.clear();
    for (const Node& n : nodes_) {
      if (n.id >= 0) ids.push_back(n.id);
    }
  }

 private:
  Node& node(int32_t at) { return nodes_[static_cast<size_t>(at)]; }
  // The lower rank is the smaller number, and the place further left among equal ranks.
  uint64_t candidate(int32_t at) { return key_of(node(at).merge.rank, at); }
  bool find(int32_t at) {
    Node& left = node(at);
    left.merge = left.next < 0 ? Merge{} : table_.find(left.id, node(left.next).id);
    if (left.merge.rank < 0) return false;
    if (see_ != nullptr) (*see_)(left.id, node(left.next).id, left.merge.result);
    return true;
  }
  void offer(int32_t at) {
    if (!find(at)) return;
    queue_.push_back(candidate(at));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  const MergeTable& table_;
  const SeePair* see_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> queue_;  // a heap
};

}  // namespace

MergeTable::MergeTable(size_t num_merges)
    : slots_(std::bit_ceil(std::max<size_t>(16, num_merges * 2))),
      shift_(64 - static_cast<int>(std::bit_width(slots_.size() - 1))) {}

size_t MergeTable::slot_of(uint64_t key) const {
  size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

Merge MergeTable::find(int32_t left, int32_t right) const { return slots_[slot_of(key_of(left, right))].merge; }

void merge_all(const MergeTable& table, std::vector<int32_t>& ids) {
  if (ids.size() <= kShortWord) return merge_short(table, ids);
  LongWord word(table, ids);
  word.merge();
  word.write(ids);
}

void merge_all(const MergeTable& table, std::vector<int32_t>& ids, const SeePair& see) {
  LongWord word(table, ids, &see);
  word.merge();
  word.write(ids);
}

}  // namespace lockstep
