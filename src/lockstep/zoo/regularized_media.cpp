#include "lockstep/zoo/regularized_media.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/zoo/film_choice.h"

namespace lockstep {
namespace {

constexpr int64_t kMostFrames = 128;

std::array<int64_t, 2> scaled(std::array<int64_t, 2> edges, int64_t pixels) {
  const double factor = std::sqrt(static_cast<double>(pixels) / static_cast<double>(edges[0] * edges[1]));
  const auto edge = [&](int64_t length) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(length) * factor));
  };
  return {edge(edges[0]), edge(edges[1])};
}

}  // namespace

RegularSize regular_frame(const MediaOptions& options, bool stretches_thin) {
  return {.least = options.video_min_pixels,
          .most = options.film_max_pixels > 0 ? options.film_max_pixels : options.video_max_pixels,
          .stretches_thin = stretches_thin};
}

std::vector<std::array<int64_t, 2>> regular_steps(std::array<int64_t, 2> edges, const RegularSize& size) {
  constexpr int64_t kLeastEdge = 28, kMostRatio = 200, kThenRatio = 180;
  std::vector<std::array<int64_t, 2>> steps;
  const auto step = [&](std::array<int64_t, 2> to) {
    if (to != edges) steps.push_back(edges = to);
  };
  if (size.most > 0 && edges[0] * edges[1] > size.most) step(scaled(edges, size.most));
  if (edges[0] * edges[1] < size.least) step(scaled(edges, size.least));
  if (!size.stretches_thin) return steps;
  step({std::max(edges[0], kLeastEdge), std::max(edges[1], kLeastEdge)});
  if (edges[0] > kMostRatio * edges[1]) step({edges[1] * kThenRatio, edges[1]});
  if (edges[1] > kMostRatio * edges[0]) step({edges[0], edges[0] * kThenRatio});
  return steps;
}

Image regular(Image image, const RegularSize& size) {
  for (const auto& [width, height] : regular_steps({image.width, image.height}, size))
    image = resize(image, width, height, Resample::kBicubic, ImageBackend::kPillow);
  return image;
}

FilmChoice regular_frames(const VideoFacts& film, const Video& row, const MediaOptions& options) {
  const double seconds = static_cast<double>(film.frames) / film.fps;
  const int64_t most = row.max_frames > 0 ? row.max_frames : options.fps_max_frames;
  const auto wanted =
      row.num_frames > 0
          ? row.num_frames
          : std::max<int64_t>({1, row.min_frames, static_cast<int64_t>(std::floor(seconds * asked_fps(row, options)))});
  const int64_t count = std::min({film.frames, most > 0 ? most : kMostFrames, wanted});
  FilmChoice choice{.frames = {}, .fps = static_cast<double>(count) / seconds};
  const double step = count > 1 ? static_cast<double>(film.frames - 1) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) choice.frames.push_back(static_cast<int64_t>(static_cast<double>(i) * step));
  if (count > 1) choice.frames.back() = film.frames - 1;
  return choice;
}

MediaOptions options_of_family(MediaOptions options) {
  if (!options.as_llama_factory) return options;
  options.shrink_to_pixels = options.min_pixels = 0;
  options.video_min_pixels = options.video_max_pixels = options.video_total_pixels = options.film_max_pixels = 0;
  return options;
}

}  // namespace lockstep
