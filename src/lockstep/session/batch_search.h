// `--batch_size auto`: the largest batch whose measured peak of memory stays within a limit, by tries.
//
// Example:
//   const BatchChoice choice = search_batch_size({.limit_bytes = limit, .largest = rows}, [&](int64_t batch) {
//     return measure(batch);
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"
#include "lockstep/session/job.h"

namespace lockstep {

inline constexpr int64_t kAutoBatch = 0;

/// How many rows a rank runs at a time; kAutoBatch: as many as fit in this part of its memory.
struct BatchSize {
  int64_t rows = 8;
  double memory_fraction = 0.9;

  bool is_auto() const { return rows == kAutoBatch; }
  /// For what is planned before the search.
  int64_t planned_rows() const { return is_auto() ? 8 : rows; }
};

struct BatchChoice {
  int64_t batch = 0;
  std::vector<BatchTry> tries;  // in the order in which they were made
};
struct BatchLimits {
  int64_t limit_bytes = 0, largest = 0;
};

/// Steps up as far as the tries so far promise to fit, at most fourfold, then closes in between what fitted and what
/// did not, to a sixteenth. `attempt` returns the peak in bytes; nullopt: out of memory. Throws UserError(kMemory) when
/// one row does not fit.
BatchChoice search_batch_size(const BatchLimits& limits,
                              const std::function<std::optional<int64_t>(int64_t batch)>& attempt);

/// The longest of up to 64 rows spread over the data set, as `features_of` makes it; nullopt when none of them can be
/// used.
std::optional<Features> longest_row(const Dataset& rows, const std::function<Features(const Sample&)>& features_of);

/// What each rank may use at its peak: `fraction` of what its fullest GPU, or its share of the machine, has free and holds
/// for it, of the rank that has least. Collective.
int64_t agree_limit(Job& job, double fraction);

/// The search over all ranks: each runs `work` (which may be collective) with its peak measured; the rank that needs
/// most decides. The limit is agree_limit's. Emits the tries on the reporting rank. Collective.
int64_t agree_batch_size(Job& job, double fraction, int64_t largest, const EventBus& events,
                         const std::function<int64_t(int64_t batch)>& work);

}  // namespace lockstep
