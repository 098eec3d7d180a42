// `--gradient_checkpointing auto`: blocks run again for their gradients only where memory has no room for what they made.
//
// Example:
//   options.kept_blocks = most_kept_blocks(job, agree_limit(ranks, 0.9));      // of each device
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/session/forecast.h"

namespace lockstep {

/// The most of `blocks` with which `needs`, which rises with them, stays within `limit`; 0 where nothing does. Looks by turns
/// where a line between what it knows says, and in the middle: a few tries do.
int most_kept(int blocks, int64_t limit, const std::function<int64_t(int kept)>& needs);

/// Of each device, for the job as it is planned: within `limit` bytes of a GPU's tensors, or of this process where it
/// computes itself, and within whatever the job's devices are limited to.
int most_kept_blocks(const PlannedJob& job, int64_t limit);

/// For people.
std::string kept_blocks_text(int kept, int blocks, int64_t limit);

}  // namespace lockstep
