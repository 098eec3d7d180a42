#include "lockstep/session/media_environment.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/tile_image.h"

namespace lockstep {
namespace {

// Where pictures and films are made as LLaMA-Factory makes them: what any family heeds then, and what none does.
constexpr std::string_view kRegular[] = {
    "MIN_PIXELS",     "VIDEO_MIN_PIXELS",    "VIDEO_MAX_PIXELS",    "FPS",
    "FPS_MAX_FRAMES", "IMAGE_MIN_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM", "VIDEO_MAX_TOKEN_NUM"};
constexpr std::string_view kNotRegular[] = {"VIDEO_TOTAL_PIXELS", "FPS_MIN_FRAMES", "NFRAMES", "VIDEO_SEGMENTS"};
constexpr const char* kMediaAs = "MEDIA_AS";

/// Of Qwen's towers: a token stands for an edge of 28 pixels, and its number goes before that of pixels.
/// Source: ms-swift 4.6 model/models/qwen.py patch_qwen_vl_utils.
void read_token_numbers(const Env& env, MediaOptions& media) {
  constexpr int64_t kToken = 28 * 28, kMost = int64_t{1} << 24;
  const std::pair<const char*, int64_t*> numbers[] = {{"IMAGE_MIN_TOKEN_NUM", &media.min_pixels},
                                                      {"IMAGE_MAX_TOKEN_NUM", &media.max_pixels},
                                                      {"VIDEO_MIN_TOKEN_NUM", &media.video_min_pixels},
                                                      {"VIDEO_MAX_TOKEN_NUM", &media.video_max_pixels}};
  for (const auto& [name, pixels] : numbers) {
    const auto given = env.integer(name);
    if (!given) continue;
    if (*given <= 0 || *given > kMost)
      throw usage_error(fmt::format("{}={}: expected a number of tokens from 1 to {}", name, *given, kMost));
    *pixels = *given * kToken;
  }
}

void read_fps(const Env& env, MediaOptions& media) {
  if (const auto fps = env.text("FPS")) {
    char* end = nullptr;
    media.fps = std::strtod(fps->c_str(), &end);
    if (*end != '\0' || !(media.fps > 0) || !std::isfinite(media.fps)) {
      throw usage_error(fmt::format("FPS={}: expected frames a second, above 0", *fps));
    }
  }
}

}  // namespace

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
  read_token_numbers(env, media);
  read("INPUT_SIZE", media.tile_size);
  read_tiles("MAX_NUM", media.max_tiles);
  read_tiles("VIDEO_MAX_NUM", media.video_max_tiles);
  read_tiles("MAX_SLICE_NUMS", media.max_slices);
  read_tiles("VIDEO_MAX_SLICE_NUMS", media.video_max_slices);
  const auto read_frames = [&](const char* name, int64_t& value) {
    const auto given = env.integer(name);
    if (!given) return;
    if (*given <= 0) throw usage_error(fmt::format("{}={}: expected a number of frames above 0", name, *given));
    value = *given;
  };
  read_frames("MAX_NUM_FRAMES", media.max_frames);
  read_frames("FPS_MIN_FRAMES", media.fps_min_frames);
  read_frames("FPS_MAX_FRAMES", media.fps_max_frames);
  read_frames("NFRAMES", media.num_frames);
  read_frames("VIDEO_SEGMENTS", media.video_segments);
  media.program_path = env.text("PATH").value_or(kUsualSearchPath);
  if (const auto rate = env.integer("SAMPLING_RATE")) {
    if (*rate <= 0) throw usage_error(fmt::format("SAMPLING_RATE={}: expected samples a second, above 0", *rate));
    media.sampling_rate = *rate;
  }
  if (const auto boxes = env.text("QWENVL_BBOX_FORMAT")) {
    if (*boxes != "legacy" && *boxes != "new")
      throw usage_error(fmt::format("QWENVL_BBOX_FORMAT={}: expected legacy or new", *boxes));
    media.plain_boxes = *boxes == "new";
  }
  if (const auto like = env.text(kMediaAs)) {
    if (*like != "llama_factory") throw usage_error(fmt::format("MEDIA_AS={}: expected llama_factory", *like));
    media.as_llama_factory = true;
  }
  media.audio_in_video = env.flag("USE_AUDIO_IN_VIDEO").value_or(media.audio_in_video);
  read_fps(env, media);
}

std::vector<std::string> media_variables(const Env& env) {
  std::vector<std::string> set;
  for (const char* name : {"MIN_PIXELS",          "MAX_PIXELS",           "VIDEO_MIN_PIXELS",
                           "VIDEO_MAX_PIXELS",    "VIDEO_TOTAL_PIXELS",   "MAX_NUM",
                           "VIDEO_MAX_NUM",       "INPUT_SIZE",           "VIDEO_SEGMENTS",
                           "MAX_SLICE_NUMS",      "MAX_NUM_FRAMES",       "FPS",
                           "FPS_MIN_FRAMES",      "FPS_MAX_FRAMES",       "NFRAMES",
                           "SAMPLING_RATE",       "USE_AUDIO_IN_VIDEO",   "IMAGE_MAX_TOKEN_NUM",
                           "VIDEO_MAX_TOKEN_NUM", "VIDEO_MAX_SLICE_NUMS", "QWENVL_BBOX_FORMAT",
                           "IMAGE_MIN_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM"}) {
    if (env.text(name)) set.emplace_back(name);
  }
  if (env.text(kMediaAs)) {
    std::erase_if(set, [](const std::string& name) { return std::ranges::find(kRegular, name) != std::end(kRegular); });
    set.emplace_back(kMediaAs);
  }
  // Of qwen_vl_utils and older ms-swift; what they are where nobody says so is what is done.
  static constexpr std::pair<const char*, int64_t> kFixed[] = {
      {"IMAGE_FACTOR", 28}, {"SIZE_FACTOR", 28}, {"FRAME_FACTOR", 2}, {"MAX_RATIO", 200}};
  for (const auto& [name, usual] : kFixed) {
    if (const auto text = env.text(name); text && *text != std::to_string(usual)) set.emplace_back(name);
  }
  return set;
}

std::vector<std::string> unheeded_variables(const std::vector<std::string>& set, const Family& family) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto& heeded = family.variables;
  // Names that mean one thing to a family which heeds both.
  struct OneThing {
    const char *name, *other, *says;
  };
  static constexpr OneThing kOne[] = {{"MAX_NUM", "MAX_SLICE_NUMS", "in how many parts a picture may be cut"},
                                      {"VIDEO_MAX_NUM", "VIDEO_MAX_SLICE_NUMS", "in how many parts a frame may be cut"},
                                      {"NFRAMES", "FPS", "how many frames of a film are taken"}};
  for (const auto& [name, other, says] : kOne) {
    if (has(set, name) && has(set, other) && has(heeded, name) && has(heeded, other)) {
      throw usage_error(
          fmt::format("{} and {}: expected one of them, as both say to {} {}", name, other, family.name, says));
    }
  }
  std::vector<std::string> told;
  const bool regular = has(set, kMediaAs);
  for (const auto& name : set) {
    if (name == kMediaAs) continue;
    if (regular && std::ranges::find(kNotRegular, name) != std::end(kNotRegular)) {
      told.push_back(
          fmt::format("{} is set in the environment, and nothing heeds it where films are taken as "
                      "LLaMA-Factory takes them ({}=llama_factory), which heeds FPS, FPS_MAX_FRAMES, "
                      "VIDEO_MIN_PIXELS, VIDEO_MAX_PIXELS",
                      name, kMediaAs));
      continue;
    }
    if (has(heeded, name)) continue;
    told.push_back(fmt::format("{} is set in the environment, and {} does not heed it{}", name, family.name,
                               heeded.empty() ? "" : fmt::format(" (it heeds {})", join(heeded, ", "))));
  }
  return told;
}

}  // namespace lockstep
