// How large pictures may be: a flag for every family, and the environment variables that Qwen's processors are known
// by.
#pragma once

#include "lockstep/base/env.h"
#include "lockstep/data/processor.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

/// --max_pixels.
void add_media_flags(CLI::App& app, MediaOptions& media);

/// MIN_PIXELS, MAX_PIXELS, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS, VIDEO_TOTAL_PIXELS and FPS, where they are set. Throws
/// UserError(kUsage).
void read_media_environment(const Env& env, MediaOptions& media);

}  // namespace lockstep
