#include "lockstep/zoo/prepared_video.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/video.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/regularized_media.h"

namespace lockstep {
namespace {

constexpr size_t kMostHeld = size_t{8} << 30;  // bytes of a film's frames

/// What a row says goes before what the person says.
MediaOptions options_of(const Video& video, const MediaOptions& options) {
  MediaOptions own = options;
  if (video.min_pixels > 0) own.video_min_pixels = video.min_pixels;
  if (video.max_pixels > 0) (video.file.empty() ? own.video_max_pixels : own.film_max_pixels) = video.max_pixels;
  if (video.total_pixels > 0) own.video_total_pixels = video.total_pixels;
  return own;
}

/// Sizes that a row asks for and nothing heeds.
void refuse_sizes(const Video& video, const MediumRules& rules, const MediaOptions& options, const std::string& where) {
  if (options.as_llama_factory) {
    if (video.total_pixels == 0) return;
    throw data_error(
        fmt::format("{}: expected a video without total_pixels, which is not heeded where films are taken as "
                    "LLaMA-Factory takes them, found {}",
                    where, video.total_pixels),
        "max_pixels of the row bounds each of its frames");
  }
  if (rules.film.heeds_pixels || (video.min_pixels == 0 && video.max_pixels == 0 && video.total_pixels == 0)) return;
  throw data_error(fmt::format("{}: expected a video without min_pixels, max_pixels and total_pixels, which this model "
                               "does not heed, found one of them",
                               where),
                   "leave them out of the row: this model makes all frames one size");
}

void append(std::vector<MediaBlock>& blocks, std::vector<MediaBlock> more) {
  std::move(more.begin(), more.end(), std::back_inserter(blocks));
}

std::vector<MediaBlock> of_film(const Video& video, const MediumRules& rules, const MediaOptions& options,
                                const std::string& where) {
  const VideoFile film(video.file, where, {.search_path = options.program_path});
  const bool regularly = options.as_llama_factory;
  const MediaOptions own = options_of_family(options);
  FilmChoice choice;
  LoadedMedium held;
  const Audio sound = rules.takes_sound && options.audio_in_video ? film.read_sound(rules.sound) : Audio();
  std::vector<MediaBlock> blocks;
  size_t bytes = 0;
  film.read_frames(
      [&](int64_t frames) {
        VideoFacts facts = film.facts();
        facts.frames = frames;
        choice =
            regularly ? regular_frames(facts, video, options) : rules.film.choose(facts, video, options, film.name());
        held = {.frames = {}, .fps = choice.fps, .of_file = !regularly};
        blocks.clear();
        bytes = 0;
        return choice.frames;
      },
      [&](size_t, Image frame) {
        if (regularly) frame = regular(std::move(frame), regular_frame(options, rules.stretches_thin));
        if (rules.film.each_alone) {
          append(blocks,
                 rules.prepare({.frames = {std::move(frame)}, .fps = choice.fps, .of_file = !regularly}, own, where));
          return;
        }
        if (rules.film.shrink && !regularly)
          frame = rules.film.shrink(std::move(frame), choice.frames.size(), options, where);
        bytes += frame.pixels.size();
        if (bytes > kMostHeld) {
          throw data_error(fmt::format("{}: expected chosen frames of at most {}, found {} of them with more",
                                       film.name(), format_bytes(kMostHeld), choice.frames.size()),
                           "take fewer (FPS, FPS_MAX_FRAMES, NFRAMES) or smaller ones (VIDEO_MAX_PIXELS)");
        }
        held.frames.push_back(std::move(frame));
      });
  held.sound = sound;
  return rules.film.each_alone ? blocks : rules.prepare(held, own, where);
}

}  // namespace

std::vector<MediaBlock> prepared_video(const Video& video, const MediumRules& rules, const MediaOptions& options,
                                       const std::string& where) {
  const MediaOptions own = options_of(video, options);
  refuse_sizes(video, rules, options, where);
  if (!video.file.empty()) {
    if (rules.film.choose) return of_film(video, rules, own, where);
    throw data_error(
        fmt::format("{}: expected a video as a list of frames, which this model takes, found a file", where),
        "cut it into frames: ffmpeg -i IN -vf fps=2 frame%04d.png");
  }
  LoadedMedium listed{.fps = asked_fps(video, own)};
  for (const auto& frame : video.frames) {
    Image image = load_image(frame, where, !own.as_llama_factory);
    if (own.as_llama_factory) image = regular(std::move(image), regular_frame(own, rules.stretches_thin));
    listed.frames.push_back(std::move(image));
  }
  if (rules.takes_sound && own.audio_in_video) listed.sound = load_audio(video.sound, where, rules.sound);
  return rules.prepare(listed, options_of_family(own), where);
}

}  // namespace lockstep
