#include "lockstep/session/kept_blocks.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "lockstep/base/process_memory.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// What the limit is of: the fullest GPU's tensors, or all that this process will hold.
int64_t needed_by(const PlannedJob& job, const MemoryForecast& forecast) {
  if (!forecast.fits()) return std::numeric_limits<int64_t>::max();
  if (!job.devices.on_cpu) return forecast.peak();
  int64_t held = settled_bytes() + forecast.host.figures.most_held;
  for (const auto& device : forecast.devices) held += device.figures.most_held;
  return held + (job.devices.host_is_device() ? 0 : forecast.waiting_bytes);
}

}  // namespace

int most_kept(int blocks, int64_t limit, const std::function<int64_t(int kept)>& needs) {
  int least = 0, most = blocks;  // least fits, as far as is known; most does not
  int64_t at_least = needs(0);
  if (at_least > limit || blocks == 0) return 0;
  int64_t at_most = needs(blocks);
  if (at_most <= limit) return blocks;
  for (bool by_line = true; most - least > 1; by_line = !by_line) {
    const double part = static_cast<double>(limit - at_least) / static_cast<double>(at_most - at_least);
    const int guess = least + static_cast<int>((by_line ? part : 0.5) * (most - least));
    const int next = std::clamp(guess, least + 1, most - 1);
    const int64_t found = needs(next);
    (found <= limit ? least : most) = next;
    (found <= limit ? at_least : at_most) = found;
  }
  return least;
}

KeptBlocks keep_what_fits(const PlannedJob& job, int64_t limit) {
  PlannedJob trial = job;
  trial.devices.evaluate = trial.devices.save = false;  // what is kept is gone by then
  trial.shape.options.kept_blocks = 0;
  KeptBlocks found{.blocks = make_plan(job.model, trial.shape.options).num_recomputed(), .limit = limit};
  found.kept = most_kept(found.blocks, limit, [&](int kept) {
    JobShape shape = trial.shape;
    shape.options.kept_blocks = kept;
    return needed_by(job, predict_memory(trial, shape));
  });
  return found;
}

std::string KeptBlocks::text() const {
  const char* const others = kept == blocks ? "" : kept == 0 ? ", all run again" : ", the others run again";
  return fmt::format("--gradient_checkpointing auto: {} of {} blocks keep what they made{} ({} may be used)", kept,
                     blocks, others, format_bytes(limit));
}

}  // namespace lockstep
