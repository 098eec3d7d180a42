// Who has not come to a call that others stand in: what the rules about waiting and about early ends share.
//
// Example:
//   for (const auto& [one, ranks] : missing_for(census, waiter, waiter.sample.waiting())) …   // `ranks` of class *one are awaited
#pragma once

#include <string>
#include <vector>

#include "lockstep/guard/census.h"

namespace lockstep {

/// nullptr: the rank has no such group.
const GroupReport* group_named(const RankReport& report, const std::string& name);

/// Ranks of a class: those of them that are in the group in question. Ranks that stand alike need not all be in it.
struct Missing {
  const RankClass* of;
  RankSet ranks;
};

/// Those that have not entered this call of `waiter`, which is open; not those of which nobody knows it.
std::vector<Missing> missing_for(const Census& census, const RankClass& waiter, const GroupReport* call);

/// Of some of the call's ranks nobody knows whether they have come: they take from anybody, or have no room for the group.
bool some_are_unseen(const Census& census, const GroupReport& call);

/// The call that it stands in; nullptr where it does something else, as it may while a call of it is open.
const GroupReport* standing_in(const RankClass& one);

}  // namespace lockstep
