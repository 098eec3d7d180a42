// The sizes of all rows of a data set, for those who bring rows together by them: every rank prepares a share of the rows
// once, and all ranks hold the same list (16 bytes a row).
//
// Example:
//   const MeasuredRows measured = measure_rows(job, data, processor, rows, events);   // progress is told
//   fill_bins(measured.sizes, {.capacity = 4096}, order);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"
#include "lockstep/data/row_groups.h"
#include "lockstep/session/job.h"
#include "lockstep/session/row_options.h"

namespace lockstep {

struct MeasuredRows {
  std::vector<RowSize> sizes;  // by row
  int64_t unusable = 0;        // rows without a size
  std::string reason;          // of one of them

  int64_t longest() const;  // tokens
  int64_t tokens() const;
  int64_t bytes() const { return static_cast<int64_t>(sizes.size() * sizeof(RowSize)); }
};

/// Prepares each row once, with as many threads as prepare rows in training. A row that cannot be used is counted; under
/// --strict it is thrown on all ranks. The same on every rank. Collective.
MeasuredRows measure_rows(Job& job, const Dataset& data, const Processor& processor, const RowOptions& rows,
                          const EventBus& events);

}  // namespace lockstep
