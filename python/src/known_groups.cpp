#include "known_groups.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::python {
namespace {

const std::string kDefault = "default", kOnGpu = " on the GPU";
constexpr size_t kMostPairs = Board::kGroups * 3 / 4;  // groups come first

bool has_room_for(const RankSet& members) {
  return members.empty() || members.ranks().back() < static_cast<int>(Members::kMost);
}

}  // namespace

void KnownGroups::learn(const std::string& name, const std::string& title, const std::vector<int>& ranks, bool apart) {
  if (title == kDefault && groups_[name].left) {  // all ranks are in it: they count rounds alike
    ++round_;
    made_.clear();
    making_ = -1;
  }
  std::erase_if(groups_, [&](const auto& one) {  // nothing is left of them
    const Known& known = one.second;
    return known.left && known.index < 0 && known.pairs.empty() && known.told != kDefault && one.first != name;
  });
  for (const bool on_gpu : {false, true}) {
    if (on_gpu && !apart) break;
    const std::string of = on_gpu ? name + kOnGpu : name, own = on_gpu ? title + kOnGpu : title;
    Known& known = groups_[of];
    if (known.told != own || known.ranks != ranks || known.left || known.round != round_) {
      const int before = made_[of]++;  // names that are made of the ranks come again without a new round
      known = {.told = own, .title = in_round(own), .ranks = ranks, .round = round_};
      if (before > 0) known.title += fmt::format(", again {}", before);
    }
    known.apart = apart;
  }
  if (title == kDefault && round_ > 1)
    of_all(groups_[name]);  // else it would have left all of its groups until its first call
}

std::string KnownGroups::in_round(const std::string& title) const {
  return round_ == 1 ? title : fmt::format("{}, round {}", title, round_);
}

void KnownGroups::set_patience(const std::string& name, Clock::duration patience) {
  for (const std::string& of : {name, name + kOnGpu}) {
    const auto known = groups_.find(of);
    if (known == groups_.end()) continue;
    known->second.patience = patience;
    if (known->second.index >= 0) recorder_.set_patience(known->second.index, patience);
  }
}

/// Of the default group: no rank makes a group without it.
void KnownGroups::leave(const std::string& name) {
  for (const std::string& of : {name, name + kOnGpu}) {
    const auto known = groups_.find(of);
    if (known == groups_.end() || known->second.left) continue;
    known->second.left = true;
    leave(known->second);
  }
}

void KnownGroups::leave(const Known& known) {
  const auto let_go = [this](int index) {
    if (index < 0) return;
    recorder_.leave_group(index);
    left_.push_back(index);
  };
  let_go(known.index);
  for (const auto& [title, index] : known.pairs) let_go(index);
  if (known.told == kDefault) let_go(making_);
}

/// The place of a group that this rank has left, the longest ago; no name leads to it any more. Another rank may still be in a call of
/// that group, to which this one has come, and nobody could know: where the guard is strict it would not be let go on. -1: there is none.
int KnownGroups::free_one() {
  const auto free = std::ranges::find_if(left_, [this](int index) { return recorder_.is_free(index); });
  if (free == left_.end() || recorder_.strict()) return -1;
  const int index = *free;
  left_.erase(free);
  const auto is_it = [index](const auto& entry) { return entry.second == index; };
  std::erase_if(indices_, is_it);
  for (auto& [name, known] : groups_) {
    if (known.index == index) known.index = -1;
    std::erase_if(known.pairs, is_it);
  }
  if (making_ == index) making_ = -1;
  forgets_(index);
  return index;
}

KnownGroups::Found KnownGroups::of(const CallInGroup& call) {
  const auto [named, is_new] = groups_.try_emplace(call.name);
  if (is_new && call.size == world_size_) {
    named->second.told = call.name.empty() || call.name == "0" ? kDefault : call.name;
    named->second.title = in_round(named->second.told);
    named->second.round = round_;
  }
  Known& known = named->second.apart && call.on_gpu ? groups_[call.name + kOnGpu] : named->second;
  if (known.title.empty()) return {};
  return CallSignature{.op = call.op}.between_two() ? of_pair(known, call) : of_all(known);
}

int KnownGroups::of_making(const RankSet& members) {
  if (members.empty() || !has_room_for(members)) return -1;
  if (making_ < 0) making_ = add(in_round("new_group"), {}, Board::kGroups);
  if (making_ >= 0) recorder_.set_members(making_, members);
  return making_;
}

/// -1: there is no room for it, which the others must know: they would believe that this rank does not come to its calls.
int KnownGroups::add(const std::string& title, const RankSet& members, size_t most) {
  const std::string key = fmt::format("{} of {}", title, members.text());
  if (const auto known = indices_.find(key); known != indices_.end()) return known->second;
  if (!has_room_for(members)) return -1;
  if (count_ >= static_cast<int>(most)) {
    const int free = free_one();
    recorder_.lack_room(free < 0 && most == kMostPairs ? Board::kNoPairs : Board::kNoPairs | Board::kNoGroups);
    if (free < 0) return -1;
    recorder_.replace_group(free, title, members);
    return indices_[key] = free;
  }
  ++count_;
  return indices_[key] = recorder_.add_group(title, members);
}

KnownGroups::Found KnownGroups::of_all(Known& known) {
  if (known.index >= 0) return {.index = known.index};
  RankSet members;
  if (known.ranks.size() < static_cast<size_t>(world_size_)) {
    for (const int rank : known.ranks) members.add(rank);
  }
  const std::string title = members.empty() ? known.title : fmt::format("{} of {}", known.title, members.phrase());
  known.index = add(title, members, Board::kGroups);
  if (known.index >= 0 && known.patience > Clock::duration::zero()) recorder_.set_patience(known.index, known.patience);
  return {.index = known.index};
}

std::string KnownGroups::pair_title(const Known& known, int64_t tag, int from, int to) const {
  return fmt::format("{}{} from rank {} to rank {}", known.title, tag == 0 ? "" : fmt::format(", tag {},", tag), from,
                     to);
}

/// What comes may be for another call of its own: nothing that is sent to it can be told apart any more, and whoever sends to it
/// must not believe that it does not come.
void KnownGroups::take_from_anybody(Known& known, int64_t tag) {
  if (known.taken.size() >= kMostPairs || !known.taken.insert(tag).second) return;
  for (const auto& [title, index] : known.pairs) {
    if (index >= 0 && title.ends_with(fmt::format("to rank {}", rank_))) recorder_.close_group(index);
  }
  known.any_source = true;
  const int size = known.ranks.empty() ? world_size_ : static_cast<int>(known.ranks.size());
  for (int i = 0; i < size; ++i) {
    const int other = known.ranks.empty() ? i : known.ranks[static_cast<size_t>(i)];
    const std::string title = pair_title(known, tag, other, rank_);
    if (other == rank_ || known.pairs.contains(title)) continue;
    const int index = add(title, RankSet{rank_, other}, kMostPairs);
    if (index < 0) return;
    known.pairs[title] = index;
    recorder_.close_group(index);
  }
}

/// What goes from one rank to another under one tag is a group of two, whose calls come in one order.
KnownGroups::Found KnownGroups::of_pair(Known& known, const CallInGroup& call) {
  const bool sends = call.op == Op::kSend;
  if (!sends && (call.peer < 0 || known.any_source)) {
    take_from_anybody(known, call.tag);
    return {};
  }
  const auto peer = static_cast<size_t>(call.peer);
  if (call.peer < 0 || (!known.ranks.empty() && peer >= known.ranks.size())) return {};
  const int other = known.ranks.empty() ? call.peer : known.ranks[peer];
  const std::string title = pair_title(known, call.tag, sends ? rank_ : other, sends ? other : rank_);
  const auto at = known.pairs.find(title);
  if (at != known.pairs.end()) return {.index = at->second, .peer = other};
  const int index = add(title, RankSet{rank_, other}, kMostPairs);
  if (index >= 0) known.pairs[title] = index;
  return {.index = index, .peer = other};
}

}  // namespace lockstep::python
