#include "lockstep/guard/who_waits.h"

#include <algorithm>
#include <utility>

namespace lockstep {

const GroupReport* group_named(const RankReport& report, const std::string& name) {
  for (const auto& group : report.groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

namespace {

/// Its board has had no room for the group of this call, or will have none when the rank comes to it.
bool has_no_room(const RankReport& report, const GroupReport& call) {
  const FlightRecord* made = call.find(call.waiting_seq);
  const bool pair = made != nullptr && made->signature.between_two();
  return (static_cast<uint32_t>(report.no_room) & (pair ? Board::kNoPairs : Board::kNoGroups)) != 0;
}

}  // namespace

std::vector<Missing> missing_for(const Census& census, const RankClass& waiter, const GroupReport* call) {
  std::vector<Missing> missing;
  for (const auto& one : census.classes) {
    if (&one == &waiter) continue;
    const GroupReport* group = group_named(one.sample, call->name);
    RankSet concerned = call->of(one.ranks);
    if (concerned.empty() || (group != nullptr && group->entered >= call->waiting_seq)) continue;
    if (group == nullptr && has_no_room(one.sample, *call)) continue;
    missing.push_back({&one, std::move(concerned)});
  }
  return missing;
}

bool some_are_unseen(const Census& census, const GroupReport& call) {
  return std::ranges::any_of(census.classes, [&](const RankClass& one) {
    if (call.of(one.ranks).empty()) return false;
    const GroupReport* group = group_named(one.sample, call.name);
    return group == nullptr ? has_no_room(one.sample, call) : group->entered == kUnseen;
  });
}

const GroupReport* standing_in(const RankClass& one) {
  const GroupReport* call = one.sample.waiting();
  return call != nullptr && call->stands ? call : nullptr;
}

}  // namespace lockstep
