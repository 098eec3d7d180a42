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

/// Those that were measured and have less than a third of the median bandwidth.
std::vector<Link> slow_links(const std::vector<Link>& links);

/// The table, and what is slow or broken.
CheckResults judge_links(int ranks, const std::string& transport, const std::vector<Link>& links);
Json as_json(const Link& link);
Link link_from(const Json& json);

struct LinkOptions {
  PairOptions pair;
  int64_t tries = 8;                    // of the large message, at most
  double tries_seconds = 0.1;           // that they may take together
  std::function<void()> synchronize{};  // the device, where there is one: before the clock is read
  std::function<void(int64_t done, int64_t total)> progress{};
};
/// All links, the same on every rank. Pairs that look slow are measured again with nobody beside them: ranks of one
/// machine may only have waited for its cores. Collective.
std::vector<Link> measure_links(const World& world, Rendezvous& meeting_point, Communicator& control,
                                const LinkOptions& options);

}  // namespace lockstep
