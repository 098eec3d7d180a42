#include "lockstep/cli/media_flags.h"

#include <cmath>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

void add_media_flags(CLI::App& app, MediaOptions& media) {
  app.add_option("--max_pixels", media.shrink_to_pixels,
                 "scale larger images down to so many pixels before the model's own processor sees them; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("Data");
}

void read_media_environment(const Env& env, MediaOptions& media) {
  const auto read = [&](const char* name, int64_t& value) {
    const auto given = env.integer(name);
    if (!given) return;
    if (*given <= 0) throw usage_error(fmt::format("{}={}: expected a number of pixels above 0", name, *given));
    value = *given;
  };
  read("MIN_PIXELS", media.min_pixels);
  read("MAX_PIXELS", media.max_pixels);
  read("VIDEO_MIN_PIXELS", media.video_min_pixels);
  read("VIDEO_MAX_PIXELS", media.video_max_pixels);
  read("VIDEO_TOTAL_PIXELS", media.video_total_pixels);
  if (const auto fps = env.text("FPS")) {
    char* end = nullptr;
    media.fps = std::strtod(fps->c_str(), &end);
    if (*end != '\0' || !(media.fps > 0) || !std::isfinite(media.fps)) {
      throw usage_error(fmt::format("FPS={}: expected frames a second, above 0", *fps));
    }
  }
}

}  // namespace lockstep
