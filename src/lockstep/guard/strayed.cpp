#include "lockstep/guard/strayed.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kContext = 16, kLeastContext = 2, kLongestGap = 256;

struct Entry {
  const GroupReport* group;
  const FlightRecord* call;
};

bool same_call(const FlightRecord& a, const FlightRecord& b) {
  return a.signature.agrees_with(b.signature) && a.label.view() == b.label.view();
}

bool same(const Entry& a, const Entry& b) { return a.group == b.group && same_call(*a.call, *b.call); }

/// The calls of all groups in the order in which they were made, from where all of them are recorded.
std::vector<Entry> path_of(const RankReport& report) {
  std::vector<Entry> path;
  int64_t whole_since = 0;
  for (const auto& group : report.groups) {
    if (group.tail.empty()) continue;
    if (group.tail.front().seq > 1) whole_since = std::max(whole_since, group.tail.front().entered_ns);
    for (const auto& call : group.tail) path.push_back({&group, &call});
  }
  std::erase_if(path, [&](const Entry& entry) { return entry.call->entered_ns < whole_since; });
  std::stable_sort(path.begin(), path.end(),
                   [](const Entry& a, const Entry& b) { return a.call->entered_ns < b.call->entered_ns; });
  return path;
}

/// The earlier place whose calls before it are most like those before the last one; 0 when there is none.
size_t usual_place(const std::vector<Entry>& path) {
  const size_t last = path.size() - 1;
  size_t best = 0, most = kLeastContext - 1;
  for (size_t place = last - 1; place > 0; --place) {
    size_t alike = 0;
    while (alike < std::min(kContext, place) && same(path[place - 1 - alike], path[last - 1 - alike])) ++alike;
    if (alike <= most) continue;
    most = alike;
    best = place;
  }
  return best;
}

}  // namespace

std::optional<Strayed> strayed(const RankReport& report) {
  const std::vector<Entry> path = path_of(report);
  if (path.size() < kLeastContext + 2) return std::nullopt;
  const size_t place = usual_place(path);
  const Entry& last = path.back();
  if (place == 0 || same(path[place], last)) return std::nullopt;
  Strayed found{.group = path[place].group->name};
  if (path[place].group != last.group && same_call(*path[place].call, *last.call)) {
    found.moved = true;
    found.skipped.push_back(*path[place].call);
    return found;
  }
  for (size_t at = place; at + 1 < path.size() && at - place <= kLongestGap; ++at) {
    if (same(path[at], last)) return found;
    found.skipped.push_back(*path[at].call);
  }
  return std::nullopt;  // a call that is new to it
}

}  // namespace lockstep
