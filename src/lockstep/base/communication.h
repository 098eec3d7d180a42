// What the ranks' communication cost, as plain values: counted in comm/, told and drawn by watch/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The calls of one kind, or of one label. Figures are those of one rank: the mean over ranks.
///
/// bytes:   the whole array of each call, as nccl-tests count it (all_gather: the result, reduce_scatter: the input).
/// busy:    from a call's launch to its end, as far as the transport works by itself; else while the rank is in it.
/// exposed: the rank stood in the call and did nothing else. What is busy and not exposed was hidden behind compute.
/// late:    of the busy time, waiting for ranks that had not come yet.
struct CommunicationLine {
  std::string name;            // "gather", or the whole label: "text.layers.7 gather"
  std::string operation;       // "all_gather"
  bool of_parameters = false;  // of parameters and gradients; else of small values that the ranks agree on
  int64_t calls = 0, bytes = 0;
  double busy_seconds = -1, exposed_seconds = 0, late_seconds = -1;  // -1: the transport does not tell
  double longest_exposed_seconds = 0;                                // of the rank that stood longest in these calls
  int longest_rank = -1;  // -1: no rank differs from the mean by more than a fifth

  double algorithm_bandwidth() const { return busy_seconds > 0 ? static_cast<double>(bytes) / busy_seconds : 0; }
  /// What the wire of a rank carried, independent of the number of ranks.
  /// Source: nccl-tests, doc/PERFORMANCE.md: all_reduce 2(n-1)/n, all_gather and reduce_scatter (n-1)/n, broadcast 1.
  double bus_bandwidth(int ranks) const;
};

/// Of a whole run. Empty (no kinds) where there is one rank, or nobody wants figures.
struct CommunicationFigures {
  int ranks = 0;
  double seconds = 0;                     // of the run
  std::string transport;                  // "shared memory", "gloo", "nccl"
  bool every_label = false;               // people want to see each label, not the kinds
  int waited_for = -1;                    // the rank that the others waited for; -1: none stands out
  std::vector<CommunicationLine> kinds;   // longest exposed first
  std::vector<CommunicationLine> labels;  // in the order of their first calls

  bool empty() const { return kinds.empty(); }
  const std::vector<CommunicationLine>& shown() const { return every_label ? labels : kinds; }
};

}  // namespace lockstep
