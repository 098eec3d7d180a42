// `--batch_size auto`: the largest batch whose peak of memory stays within a limit. It is measured by tries; where one that
// finds no memory would part the ranks, it is foreseen.
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
#include "lockstep/exec/rehearsal.h"
#include "lockstep/session/job.h"

namespace lockstep {

class Session;

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

/// Whether a batch must not be tried that may find no memory: the calls between GPUs that a rank has queued cannot be taken
/// back, and ranks that fail at different places, or one alone, would not meet again.
bool tries_may_part(const Job& job, const Plan& plan);

/// The search over all ranks: each runs `work` (which may be collective) with its peak measured; the rank that needs
/// most decides. The limit is agree_limit's. Emits the tries on the reporting rank. Throws the same SharedError(kMemory) on all
/// when they found no memory at different calls. Collective.
int64_t agree_batch_size(Job& job, double fraction, int64_t largest, const EventBus& events,
                         const std::function<int64_t(int64_t batch)>& work);

/// The search where tries_may_part(): nothing is run. `needs`: what a batch is foreseen to need, asked on the reporting rank; a
/// margin is added. Collective.
int64_t foresee_batch_size(Job& job, double fraction, int64_t largest, const EventBus& events,
                           const std::function<int64_t(int64_t batch)>& needs);

/// Copies of one row, in a run that trains nothing.
struct RowTries {
  const Features& row;
  RowWork work{};  // what is foreseen
  double memory_fraction = 0.9;
  int64_t largest = 0;
};
/// One of both searches: of `run`, or of a rehearsal. Collective.
int64_t agree_batch_of(Session& session, const RowTries& tries, const EventBus& events,
                       const std::function<int64_t(int64_t batch)>& run);

}  // namespace lockstep
