#include "lockstep/zoo/film_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/video.h"

namespace lockstep {
namespace {

int64_t first_given(std::initializer_list<int64_t> given) {
  return *std::ranges::find_if(given, [](int64_t value) { return value > 0; });
}

/// A row asks for what the family does not heed.
void refuse(bool asked, const char* key, const char* instead, const std::string& name) {
  if (!asked) return;
  throw data_error(fmt::format("{}: expected a film without {}, which this model does not heed, found it", name, key),
                   fmt::format("leave it out of the row, or set {}", instead));
}

void refuse_speed(const Video& row, const char* instead, const std::string& name) {
  refuse(row.fps > 0, "fps", instead, name);
  refuse(row.min_frames > 0, "min_frames", instead, name);
}

/// Source: qwen_vl_utils smart_nframes.
int64_t even_count(const VideoFacts& film, const Video& row, const MediaOptions& options) {
  const int64_t of_person = row.fps > 0 || row.min_frames > 0 || row.max_frames > 0 ? 0 : options.num_frames;
  if (row.num_frames > 0 || of_person > 0) {
    const int64_t wanted = row.num_frames > 0 ? row.num_frames : of_person;
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(wanted) / 2)) * 2;
  }
  const auto all = static_cast<double>(film.frames);
  const int64_t least = (first_given({row.min_frames, options.fps_min_frames, 4}) + 1) / 2 * 2;
  const int64_t most =
      (row.max_frames > 0 ? row.max_frames : std::min(first_given({options.fps_max_frames, 768}), film.frames)) / 2 * 2;
  const double wanted = std::max(all / film.fps * asked_fps(row, options), static_cast<double>(least));
  return static_cast<int64_t>(std::floor(std::min({wanted, static_cast<double>(most), all}) / 2)) * 2;
}

}  // namespace

double asked_fps(const Video& row, const MediaOptions& options) {
  return row.fps > 0 ? row.fps : options.fps > 0 ? options.fps : 2.0;
}

FilmChoice evenly_spread_frames(const VideoFacts& film, const Video& row, const MediaOptions& options,
                                const std::string& name) {
  const int64_t count = even_count(film, row, options);
  if (count < 2 || count > film.frames) {
    throw data_error(fmt::format("{}: expected 2 to {} frames to be taken of it, two of which make a patch, found {}",
                                 name, film.frames, count),
                     film.frames < 2
                         ? "a film of one frame is a picture: give it as an image"
                         : "take another number of frames (NFRAMES, FPS, FPS_MAX_FRAMES, or the row's own)");
  }
  FilmChoice choice{.frames = {}, .fps = static_cast<double>(count) / static_cast<double>(film.frames) * film.fps};
  for (int64_t i = 0; i < count; ++i) {
    const double place = static_cast<double>(i * (film.frames - 1)) / static_cast<double>(count - 1);
    choice.frames.push_back(static_cast<int64_t>(std::nearbyint(place)));  // never a half: count - 1 is odd
  }
  return choice;
}

FilmChoice segment_middles(const VideoFacts& film, const Video& row, const MediaOptions& options,
                           const std::string& name) {
  refuse_speed(row, "VIDEO_SEGMENTS", name);
  refuse(row.max_frames > 0, "max_frames", "VIDEO_SEGMENTS, or nframes in the row", name);
  const int64_t segments = first_given({row.num_frames, options.video_segments, 8});
  if (segments > static_cast<int64_t>(kMaxChosenFrames))
    throw data_error(fmt::format("{}: expected at most {} segments, found {}", name, kMaxChosenFrames, segments));
  FilmChoice choice{.frames = {}, .fps = static_cast<double>(segments) / static_cast<double>(film.frames) * film.fps};
  const double size = static_cast<double>(film.frames - 1) / static_cast<double>(segments);
  for (int64_t i = 0; i < segments; ++i)
    choice.frames.push_back(static_cast<int64_t>(size / 2 + std::nearbyint(size * static_cast<double>(i))));
  return choice;
}

FilmChoice frame_a_second(const VideoFacts& film, const Video& row, const MediaOptions& options,
                          const std::string& name) {
  refuse_speed(row, "MAX_NUM_FRAMES, or max_frames in the row", name);
  refuse(row.num_frames > 0, "nframes", "MAX_NUM_FRAMES, or max_frames in the row", name);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(film.fps)));
  const int64_t most = first_given({row.max_frames, options.max_frames, 64});
  FilmChoice choice{.frames = {}, .fps = film.fps / static_cast<double>(step)};
  const auto seconds = static_cast<size_t>((film.frames + step - 1) / step);
  for (const size_t second : evenly_chosen(seconds, most)) choice.frames.push_back(static_cast<int64_t>(second) * step);
  return choice;
}

std::vector<size_t> evenly_chosen(size_t count, int64_t most) {
  std::vector<size_t> chosen(most > 0 ? std::min(count, static_cast<size_t>(most)) : count);
  const double gap = static_cast<double>(count) / static_cast<double>(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<size_t>(static_cast<double>(i) * gap + gap / 2);
  return chosen;
}

}  // namespace lockstep
