#include "known_groups.h"

#include <fmt/format.h>

namespace lockstep::python {
namespace {

bool has_room_for(const RankSet& members) {
  return members.empty() || members.ranks().back() < static_cast<int>(Members::kMost);
}

}  // namespace

void KnownGroups::learn(const std::string& name, const std::string& title, const std::vector<int>& ranks) {
  Known& known = groups_[name];
  if (known.title != title || known.ranks != ranks) known = {.title = title, .ranks = ranks};  // a name may come again
  if (known.index >= 0) recorder_.leave_group(known.index, false);                             // as all of it may
}

void KnownGroups::leave(const std::string& name) {
  const auto known = groups_.find(name);
  if (known != groups_.end() && known->second.index >= 0) recorder_.leave_group(known->second.index);
}

KnownGroups::Found KnownGroups::of(const CallInGroup& call) {
  const auto [known, is_new] = groups_.try_emplace(call.name);
  if (is_new && call.size == world_size_) {
    known->second.title = call.name.empty() || call.name == "0" ? "default" : call.name;
  }
  if (known->second.title.empty()) return {};
  return CallSignature{.op = call.op}.between_two() ? of_pair(known->second, call) : of_all(known->second);
}

int KnownGroups::of_making(const RankSet& members) {
  if (members.empty() || !has_room_for(members)) return -1;
  if (making_ < 0) making_ = add("new_group", {}, Board::kGroups);
  if (making_ >= 0) recorder_.set_members(making_, members);
  return making_;
}

/// -1: there is no room for it.
int KnownGroups::add(const std::string& title, const RankSet& members, size_t most) {
  if (count_ >= static_cast<int>(most) || !has_room_for(members)) return -1;
  ++count_;
  return recorder_.add_group(title, members);
}

KnownGroups::Found KnownGroups::of_all(Known& known) {
  if (known.index >= 0) return {.index = known.index};
  RankSet members;
  if (known.ranks.size() < static_cast<size_t>(world_size_)) {
    for (const int rank : known.ranks) members.add(rank);
  }
  const std::string title = members.empty() ? known.title : fmt::format("{} of {}", known.title, members.phrase());
  known.index = add(title, members, Board::kGroups);
  return {.index = known.index};
}

/// What goes from one rank to another under one tag is a group of two, whose calls come in one order.
KnownGroups::Found KnownGroups::of_pair(Known& known, const CallInGroup& call) {
  constexpr size_t kMost = Board::kGroups * 3 / 4;  // groups come first
  const bool sends = call.op == Op::kSend;
  if (!sends && (call.peer < 0 || known.any_source)) {
    // It may take what another call of its own is recorded for: nothing that comes to it can be told apart any more.
    for (const auto& [title, index] : known.pairs) {
      if (index >= 0 && title.ends_with(fmt::format("to rank {}", rank_))) recorder_.close_group(index);
    }
    known.any_source = true;
    return {};
  }
  const auto peer = static_cast<size_t>(call.peer);
  if (call.peer < 0 || (!known.ranks.empty() && peer >= known.ranks.size())) return {};
  const int other = known.ranks.empty() ? call.peer : known.ranks[peer];
  const std::string title =
      fmt::format("{}{} from rank {} to rank {}", known.title, call.tag == 0 ? "" : fmt::format(", tag {},", call.tag),
                  sends ? rank_ : other, sends ? other : rank_);
  const auto [at, is_new] = known.pairs.try_emplace(title, -1);
  if (is_new) at->second = add(title, RankSet{rank_, other}, kMost);
  return {.index = at->second, .peer = other};
}

}  // namespace lockstep::python
