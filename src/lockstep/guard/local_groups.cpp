// What the ranks of this machine did in each group, beside each other.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/guard/local_ranks.h"

namespace lockstep {

std::map<uint64_t, std::vector<std::pair<Board*, Group*>>> LocalRanks::groups() const {
  std::map<uint64_t, std::vector<std::pair<Board*, Group*>>> all;
  for (const auto& [rank, local] : ranks_) {
    if (local.board == nullptr) continue;
    Board& board = local.board->board();
    const size_t used = board.used_groups().size();
    for (size_t i = 0; i < used; ++i) {
      Group& group = board.groups[i];
      if (group.closed.load(std::memory_order_acquire) != 0) continue;
      all[group.id.load(std::memory_order_relaxed)].emplace_back(&board, &group);
    }
  }
  return all;
}

namespace {

uint64_t made_by_all(const std::vector<std::pair<Board*, Group*>>& group) {
  uint64_t made = UINT64_MAX;
  for (const auto& [board, one] : group) made = std::min(made, one->ring.entered());
  return made;
}

}  // namespace

LocalRanks::Comparison LocalRanks::compare() const {
  Comparison found;
  for (const auto& [id, group] : groups()) {
    const uint64_t seq = made_by_all(group);
    std::optional<FlightRecord> usual;
    const bool waits = std::ranges::any_of(group, [](const auto& one) { return one.second->waiting_seq.load() != 0; });
    for (const auto& [board, one] : group) {
      found.any_nan = found.any_nan || one->ring.nan_calls() > 0;
      const auto call = one->ring.find(seq);
      if (!call) continue;
      if (!usual) usual = call;
      const bool may_part =
          waits || call->signature.op != Op::kNewGroup;  // groups that could be made are as good as equal
      found.parted = found.parted || (may_part && usual->history != call->history);
      found.lines_differ = found.lines_differ || usual->path != call->path;
    }
  }
  return found;
}

/// Whether all of its ranks that this node has are there. Who has no room for it on his board does not wait for the others either.
bool LocalRanks::all_have(const std::vector<std::pair<Board*, Group*>>& group) const {
  const Group& first = *group.front().second;
  const bool of_all = first.num_members.load(std::memory_order_relaxed) == 0;
  const RankSet members = of_all ? RankSet{} : RankSet::of_bits(first.members.read_any().bits);
  return std::ranges::all_of(ranks_, [&](const auto& entry) {
    const auto& [rank, local] = entry;
    if (!of_all && !members.contains(rank)) return true;
    if (local.board == nullptr) return false;
    const Board& board = local.board->board();
    return (board.no_room.load(std::memory_order_acquire) & Board::kNoGroups) != 0 ||
           std::ranges::any_of(group, [&](const auto& one) { return one.first == &board; });
  });
}

void LocalRanks::clear_calls() {
  for (const auto& [id, group] : groups()) {
    const uint64_t seq = made_by_all(group);
    const auto is_cleared = [seq](const auto& one) {
      return one.second->cleared.load(std::memory_order_relaxed) >= seq;
    };
    if (seq == 0 || std::ranges::all_of(group, is_cleared) || !all_have(group)) continue;
    std::optional<uint64_t> history;
    const bool alike = std::ranges::all_of(group, [&](const auto& one) {
      const auto call = one.second->ring.find(seq);
      if (!history && call) history = call->history;
      return call && call->history == *history;
    });
    if (!alike) continue;
    for (const auto& [board, one] : group) {
      if (one->cleared.load(std::memory_order_relaxed) >= seq) continue;
      one->cleared.store(seq, std::memory_order_release);
      board->bell.fetch_add(1, std::memory_order_acq_rel);
      wake_all(board->bell);
    }
  }
}

}  // namespace lockstep
