// One run of ffmpeg or ffprobe over a film: the film is its standard input, what it makes comes through a pipe. A hostile
// film then harms a child that may neither write files nor take all memory nor stay behind, and no name of a file is ever
// read as an option, a protocol or a list of other files. Used by VideoFile alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/process.h"

namespace lockstep {

/// How a film's bytes are named to the child: its own standard input, which it may seek in.
inline constexpr const char* kVideoInput = "file:/proc/self/fd/0";

struct VideoRun {
  std::vector<std::string> argv;  // the program's path first
  int film = -1;                  // descriptor of a file
  std::string name;               // of the film, for messages: "rows.jsonl:3: video a.mp4"
  /// Standard output, piece by piece. What it throws ends the child.
  std::function<void(std::span<const char>)> take;
  /// Frames decoded so far, as often as the child tells of it (-progress pipe:2).
  std::function<void(int64_t)> progress = {};
  Clock::duration patience = std::chrono::seconds(60);  // without anything new
};

struct VideoRunResult {
  ExitStatus status;
  int64_t frames = 0;  // decoded, as the child has told
  std::string said;    // the beginning of what else it said on standard error, lines with "; " between
};

/// Throws UserError(kData) with the film's name for a child that is silent for too long or cannot be started.
VideoRunResult run_over_video(const VideoRun& run);

}  // namespace lockstep
