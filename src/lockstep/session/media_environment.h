// How pictures and films are made, as ms-swift is told it: by variables of the environment.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/data/processor.h"

namespace lockstep {

/// MIN_PIXELS, MAX_PIXELS, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS, VIDEO_TOTAL_PIXELS, MAX_NUM or MAX_SLICE_NUMS, VIDEO_MAX_NUM or
/// VIDEO_MAX_SLICE_NUMS, MAX_NUM_FRAMES and FPS, where they are set. Throws UserError(kUsage).
void read_media_environment(const Env& env, MediaOptions& media);

/// Those that are set, of all that ms-swift has: a family says which of them it heeds.
std::vector<std::string> media_variables(const Env& env);

}  // namespace lockstep
