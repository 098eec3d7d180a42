// Flags of how rows are read and prepared, and the environment variables that Qwen's processors are known by.
#pragma once

#include <string>

#include "lockstep/base/env.h"
#include "lockstep/session/row_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct RowFlags {
  RowOptions given;  // what a flag says as it is
  std::string truncation_strategy = "delete";

  /// With ROOT_IMAGE_DIR, MIN_PIXELS, MAX_PIXELS, VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS, VIDEO_TOTAL_PIXELS, MAX_NUM,
  /// VIDEO_MAX_NUM and FPS, where
  /// they are set. Throws UserError(kUsage).
  RowOptions options(const Env& env) const;
};
void add_row_flags(CLI::App& app, RowFlags& flags);

/// Throws UserError(kUsage).
void read_media_environment(const Env& env, MediaOptions& media);

}  // namespace lockstep
