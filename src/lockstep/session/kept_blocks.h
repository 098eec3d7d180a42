// `--gradient_checkpointing auto`: blocks run again for their gradients only where memory has no room for what they made.
//
// Example:
//   const KeptBlocks found = keep_what_fits(job, agree_limit(ranks, 0.9));
//   options.kept_blocks = found.kept;  tell(found.text());
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/session/forecast.h"

namespace lockstep {

/// The most of `blocks` with which `needs`, which rises with them, stays within `limit`; 0 where nothing does. Looks by turns
/// where a line between what it knows says, and in the middle: a few tries do.
int most_kept(int blocks, int64_t limit, const std::function<int64_t(int kept)>& needs);

/// Of the device that has most blocks which may run again.
struct KeptBlocks {
  int kept = 0, blocks = 0;
  int64_t limit = 0;  // bytes that were allowed

  std::string text() const;  // for people
};

/// For the job as it is planned: within `limit` bytes of a GPU's tensors, or of this process where it computes itself, and
/// within whatever the job's devices are limited to.
KeptBlocks keep_what_fits(const PlannedJob& job, int64_t limit);

/// Why nothing is kept beside a batch size of auto.
inline constexpr const char* kBatchTakesAll =
    "--gradient_checkpointing auto beside a batch size of auto: the batch takes what memory there is, and all blocks "
    "run "
    "again";

}  // namespace lockstep
