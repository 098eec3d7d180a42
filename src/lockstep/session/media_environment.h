// How pictures and films are made, as ms-swift is told it: by variables of the environment.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/data/processor.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

/// MIN_PIXELS, MAX_PIXELS, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS, VIDEO_TOTAL_PIXELS, MAX_NUM, VIDEO_MAX_NUM, MAX_SLICE_NUMS,
/// VIDEO_MAX_SLICE_NUMS, MAX_NUM_FRAMES, FPS, FPS_MIN_FRAMES, FPS_MAX_FRAMES, NFRAMES, VIDEO_SEGMENTS, SAMPLING_RATE and
/// USE_AUDIO_IN_VIDEO, where they are set, and PATH, where the programs lie that read films. Throws UserError(kUsage).
void read_media_environment(const Env& env, MediaOptions& media);

/// Those that are set, of all that ms-swift has: a family says which of them it heeds. MEDIA_AS among them, without those that any
/// family heeds then.
std::vector<std::string> media_variables(const Env& env);
/// A notice for each of those that are `set` and say nothing to the family. Throws UserError(kUsage) where two say one thing to
/// it; to a family that heeds one of them, or none, they do not contradict each other.
std::vector<std::string> unheeded_variables(const std::vector<std::string>& set, const Family& family);

}  // namespace lockstep
