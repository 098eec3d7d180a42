// What the tests of agents of several nodes share: agents that know one key, and what they tell.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "lockstep/guard/test_reports.h"
#include "lockstep/guard/tree_link.h"

namespace lockstep {

/// Pumps all of them until `done`, for at most ten seconds.
inline bool pump_until(const std::vector<TreeLink*>& links, const std::function<bool(size_t, const TreeNews&)>& hear,
                       const std::function<bool()>& done) {
  const Deadline deadline(std::chrono::seconds(10));
  while (!deadline.passed()) {
    for (size_t i = 0; i < links.size(); ++i) hear(i, links[i]->pump());
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

inline bool pump_until(const std::vector<TreeLink*>& links, const std::function<bool()>& done) {
  return pump_until(
      links, [](size_t, const TreeNews&) { return true; }, done);
}

inline const MacKey kKey = tree_key("a long random secret", "salt");

inline void share_key(const std::vector<TreeLink*>& links) {
  for (auto* link : links) link->set_key(kKey);
}

/// Greets until both know of each other.
inline bool meet(TreeLink& child, TreeLink& parent) {
  return child.connect_parent("127.0.0.1", parent.port()) &&
         pump_until({&parent, &child}, [&] { return child.parent_silent_seconds().has_value(); });
}

inline Census two_ranks(int first) {
  std::vector<RankReport> reports;
  for (int rank = first; rank < first + 2; ++rank) {
    RankReport report = running_rank(rank, 4);
    report.node = first / 2;
    add_calls(report, training_calls(1));
    reports.push_back(report);
  }
  return census_of(reports);
}

}  // namespace lockstep
