#include "lockstep/session/media_environment.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tile_image.h"

namespace lockstep {

void read_media_environment(const Env& env, MediaOptions& media) {
  const auto read = [&](const char* name, int64_t& value) {
    const auto given = env.integer(name);
    if (!given) return;
    if (*given <= 0) throw usage_error(fmt::format("{}={}: expected a number of pixels above 0", name, *given));
    value = *given;
  };
  // What families call by different names is one thing: a run has one of them.
  const auto read_tiles = [&](const char* name, const char* other, int64_t& value) {
    if (env.integer(name) && env.integer(other)) {
      throw usage_error(fmt::format(
          "{} and {}: expected one of them, as both say in how many parts a picture may be cut", name, other));
    }
    for (const char* word : {name, other}) {
      const auto given = env.integer(word);
      if (!given) continue;
      if (*given <= 0 || *given > kMostTiles)
        throw usage_error(fmt::format("{}={}: expected a number of tiles from 1 to {}", word, *given, kMostTiles));
      value = *given;
    }
  };
  read("MIN_PIXELS", media.min_pixels);
  read("MAX_PIXELS", media.max_pixels);
  read("VIDEO_MIN_PIXELS", media.video_min_pixels);
  read("VIDEO_MAX_PIXELS", media.video_max_pixels);
  read("VIDEO_TOTAL_PIXELS", media.video_total_pixels);
  read_tiles("MAX_NUM", "MAX_SLICE_NUMS", media.max_tiles);
  read_tiles("VIDEO_MAX_NUM", "VIDEO_MAX_SLICE_NUMS", media.video_max_tiles);
  if (const auto frames = env.integer("MAX_NUM_FRAMES")) {
    if (*frames <= 0) throw usage_error(fmt::format("MAX_NUM_FRAMES={}: expected a number of frames above 0", *frames));
    media.max_frames = *frames;
  }
  if (const auto fps = env.text("FPS")) {
    char* end = nullptr;
    media.fps = std::strtod(fps->c_str(), &end);
    if (*end != '\0' || !(media.fps > 0) || !std::isfinite(media.fps)) {
      throw usage_error(fmt::format("FPS={}: expected frames a second, above 0", *fps));
    }
  }
}

std::vector<std::string> media_variables(const Env& env) {
  std::vector<std::string> set;
  for (const char* name : {"MIN_PIXELS",          "MAX_PIXELS",          "VIDEO_MIN_PIXELS",
                           "VIDEO_MAX_PIXELS",    "VIDEO_TOTAL_PIXELS",  "MAX_NUM",
                           "VIDEO_MAX_NUM",       "INPUT_SIZE",          "VIDEO_SEGMENTS",
                           "MAX_SLICE_NUMS",      "MAX_NUM_FRAMES",      "FPS",
                           "FPS_MIN_FRAMES",      "FPS_MAX_FRAMES",      "NFRAMES",
                           "SAMPLING_RATE",       "USE_AUDIO_IN_VIDEO",  "IMAGE_MAX_TOKEN_NUM",
                           "VIDEO_MAX_TOKEN_NUM", "VIDEO_MAX_SLICE_NUMS"}) {
    if (env.text(name)) set.emplace_back(name);
  }
  return set;
}

}  // namespace lockstep
