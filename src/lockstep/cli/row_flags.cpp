#include "lockstep/cli/row_flags.h"

#include <cmath>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/data/tile_image.h"

namespace lockstep {

void add_row_flags(CLI::App& app, RowFlags& flags) {
  app.add_option("--max_length", flags.given.max_length, "tokens of a row; 0: as many as the model has positions")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--truncation_strategy", flags.truncation_strategy,
                 "of longer rows: delete | right | left; images are never cut")
      ->check(CLI::IsMember({"delete", "right", "left"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--max_pixels", flags.given.media.shrink_to_pixels,
                 "scale larger images down to so many pixels before the model's own processor sees them; 0: never")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--strict", flags.given.strict, "stop at the first row that cannot be used, instead of skipping it")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--seed", flags.given.seed, "of the data order and of sampling")
      ->check(seed_number())
      ->capture_default_str()
      ->group("Data");
  app.add_option("--dataloader_num_workers", flags.given.num_workers, "threads that prepare rows; 0: none")
      ->check(whole_number(0, 256))
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
  const auto read_tiles = [&](const char* name, int64_t& value) {
    const auto given = env.integer(name);
    if (!given) return;
    if (*given <= 0 || *given > kMostTiles)
      throw usage_error(fmt::format("{}={}: expected a number of tiles from 1 to {}", name, *given, kMostTiles));
    value = *given;
  };
  read("MIN_PIXELS", media.min_pixels);
  read("MAX_PIXELS", media.max_pixels);
  read("VIDEO_MIN_PIXELS", media.video_min_pixels);
  read("VIDEO_MAX_PIXELS", media.video_max_pixels);
  read("VIDEO_TOTAL_PIXELS", media.video_total_pixels);
  read_tiles("MAX_NUM", media.max_tiles);
  read_tiles("VIDEO_MAX_NUM", media.video_max_tiles);
  if (const auto fps = env.text("FPS")) {
    char* end = nullptr;
    media.fps = std::strtod(fps->c_str(), &end);
    if (*end != '\0' || !(media.fps > 0) || !std::isfinite(media.fps)) {
      throw usage_error(fmt::format("FPS={}: expected frames a second, above 0", *fps));
    }
  }
}

RowOptions RowFlags::options(const Env& env) const {
  RowOptions out = given;
  if (truncation_strategy == "right") out.truncation = Truncation::kRight;
  if (truncation_strategy == "left") out.truncation = Truncation::kLeft;
  out.root_image_dir = env.text("ROOT_IMAGE_DIR").value_or("");
  read_media_environment(env, out.media);
  return out;
}

}  // namespace lockstep
