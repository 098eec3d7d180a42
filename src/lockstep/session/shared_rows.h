// Work on all rows of a data set that ranks share: each takes a part of the rows, and all hold what came of all of them.
//
// Example:
//   const std::string sizes = of_all_rows(job, {.data = data, .threads = 4, .what = "measuring rows", .phase = "measure rows"},
//                                         events, [&](int64_t row) { return bytes_of(size_of(row)); });
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/event.h"
#include "lockstep/data/dataset.h"
#include "lockstep/session/job.h"

namespace lockstep {

struct SharedRows {
  const Dataset& data;
  int threads = 1;
  const char *what, *phase;  // for errors, and for progress
};

/// What `of_row` gives for each row, behind one another in the order of the rows: the same on every rank. `of_row` is called
/// by several threads at once; what it throws is thrown on all ranks. Progress is told. Collective.
std::string of_all_rows(Job& job, const SharedRows& rows, const EventBus& events,
                        const std::function<std::string(int64_t row)>& of_row);

}  // namespace lockstep
