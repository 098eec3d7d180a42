// Links between ranks: bandwidth and latency of every pair, measured a pair alone, in rounds in which every rank has at
// most one partner.
//
// Example:
//   const auto links = measure_links(world, *meeting_point, control, {.pair = {.transport = "gloo"}});
//   for (const auto& result : judge_links(world.size, "gloo", links)) …
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/pair_group.h"
#include "lockstep/doctor/check_report.h"

namespace lockstep {

struct Link {
  int a = 0, b = 0;  // a < b
  double bytes_per_second = 0, latency_seconds = 0;
  std::string error;  // why it could not be measured; empty: it was
};

using LinkRound = std::vector<std::pair<int, int>>;
/// A tournament: every two ranks meet once, in size - 1 rounds (size, when it is odd). At most `most` rounds.
std::vector<LinkRound> link_rounds(int size, int most);

/// The table, and what is slow or broken. Slow: less than a third of the median.
CheckResults judge_links(int ranks, const std::string& transport, const std::vector<Link>& links);
Json as_json(const Link& link);

struct LinkOptions {
  PairOptions pair;
  std::function<void()> synchronize{};  // the device, where there is one: before the clock is read
  std::function<void(int64_t done, int64_t total)> progress{};
};
/// All links, the same on every rank. Collective.
std::vector<Link> measure_links(const World& world, Rendezvous& meeting_point, Communicator& control,
                                const LinkOptions& options);

}  // namespace lockstep
