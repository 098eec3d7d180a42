#include "lockstep/guard/who_waits.h"

#include <utility>

namespace lockstep {

const GroupReport* group_named(const RankReport& report, const std::string& name) {
  for (const auto& group : report.groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

std::vector<Missing> missing_for(const Census& census, const RankClass& waiter, const GroupReport* call) {
  std::vector<Missing> missing;
  for (const auto& one : census.classes) {
    if (&one == &waiter) continue;
    const GroupReport* group = group_named(one.sample, call->name);
    RankSet concerned = call->of(one.ranks);
    if (concerned.empty() || (group != nullptr && group->entered >= call->waiting_seq)) continue;
    missing.push_back({&one, std::move(concerned)});
  }
  return missing;
}

const GroupReport* standing_in(const RankClass& one) {
  const GroupReport* call = one.sample.waiting();
  return call != nullptr && call->stands ? call : nullptr;
}

}  // namespace lockstep
