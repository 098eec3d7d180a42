// Growth told from peaks: memory that rises step after step until a device is full (a leak), and not memory that jumps
// once, swings with the batches, or stands high while an evaluation runs.
//
// Example:
//   MemoryGrowth growth;
//   for (const auto& text : growth.add(measured)) events.emit(Notice{text});
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"

namespace lockstep {

/// Bytes at a step, and what they were made of: by use, and by the phases' peaks.
struct MemoryPoint {
  int64_t step = 0, bytes = 0;
  BytesOfUses by_use, peaks;
};

struct Trend {
  double bytes_per_step = 0;
  int64_t since_step = 0;
  int64_t growth = 0;  // since then
};

/// The trend of the last points (15 at least, 45 at most), or none. It is one when the median of the slopes of all
/// pairs is above zero by 4.5 of its standard deviations, when it makes more than 2 % and 16 MiB over these points, and
/// when the middle third of them lies clear above the first and the last clear above the middle: a single jump does
/// not. Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau (1968).
std::optional<Trend> growth_of(const std::deque<MemoryPoint>& points);

/// Of all ranks and devices.
class MemoryGrowth {
 public:
  /// Texts for people: what began to grow, where, how fast, and when it would be full. Each device is told of once,
  /// with all ranks on which it grows by then; so is what a process holds beside tensors.
  std::vector<std::string> add(const MemoryMeasured& memory);

 private:
  static constexpr size_t kBesideTensors = 1'000'000;  // where a device's number would stand

  struct Growing {
    int rank = 0;
    Trend trend;
  };
  std::vector<Growing> growing_at(size_t device) const;
  std::string tell(size_t device, const std::vector<Growing>& growing, const MemoryMeasured& memory) const;

  std::map<std::pair<size_t, int>, std::deque<MemoryPoint>> points_;  // by device and rank
  std::set<size_t> told_;
};

}  // namespace lockstep
