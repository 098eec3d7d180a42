// How far a run over rows has come, as the reporting rank tells. It takes the others to be as far as itself, so it says that all
// is done only when they have said so.
//
// Example:
//   RowsProgress progress(job, events, "infer", total);
//   progress.reach(mine * job.world.size);   // after each row
//   journal.seal(job.control());             // all ranks have come to their end
//   progress.finish();
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/event.h"
#include "lockstep/session/job.h"

namespace lockstep {

class RowsProgress {
 public:
  RowsProgress(const Job& job, const EventBus& events, std::string phase, int64_t total)
      : job_(job), events_(events), phase_(std::move(phase)), total_(total) {
    tell(0);  // from here on time is counted
  }

  /// So many rows of all ranks, or about.
  void reach(int64_t done) { tell(std::min(done, job_.world.size == 1 ? total_ : total_ - 1)); }
  /// All, on every rank.
  void finish() { tell(total_); }

 private:
  void tell(int64_t done) {
    if (!job_.reports() || done == told_ || total_ == 0) return;
    told_ = done;
    events_.emit(Progress{.phase = phase_, .done = done, .total = total_});
  }

  const Job& job_;
  const EventBus& events_;
  std::string phase_;
  int64_t total_, told_ = -1;
};

}  // namespace lockstep
