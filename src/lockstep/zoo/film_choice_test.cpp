// The numbers are those of the code that the header names, run over films of these lengths.
#include "lockstep/zoo/film_choice.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Frames = std::vector<int64_t>;

VideoFacts film(int64_t frames, double fps) { return {.fps = fps, .frames = frames}; }
constexpr double kNtsc = 30000.0 / 1001;

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "none";
}

TEST(FilmChoice, QwenTakesAnEvenNumberEvenlySpread) {
  struct Case {
    VideoFacts film;
    Video row;
    MediaOptions options;
    Frames frames;
    double fps;
  };
  const Case cases[] = {
      {film(60, 30), {}, {}, {0, 20, 39, 59}, 2},
      {film(90, kNtsc), {}, {}, {0, 18, 36, 53, 71, 89}, 1.9980019980019978},
      {film(75, 25), {.fps = 1}, {.fps = 9, .num_frames = 20}, {0, 25, 49, 74}, 4.0 / 3},
      {film(75, 25), {.fps = 1, .min_frames = 6}, {}, {0, 15, 30, 44, 59, 74}, 2},
      {film(75, 25), {.fps = 10, .max_frames = 7}, {}, {0, 15, 30, 44, 59, 74}, 2},
      {film(10, 25), {.num_frames = 5}, {}, {0, 3, 6, 9}, 10},
      {film(10, 25), {}, {.num_frames = 7}, {0, 1, 3, 4, 5, 6, 8, 9}, 20},
      {film(3, 25), {}, {}, {0, 2}, 50.0 / 3},
      {film(2, 1), {}, {}, {0, 1}, 1},
      {film(1000, 25), {}, {.fps_max_frames = 12}, {0, 91, 182, 272, 363, 454, 545, 636, 727, 817, 908, 999}, 0.3},
      {film(250, 25), {}, {.fps = 0.5, .fps_min_frames = 2}, {0, 83, 166, 249}, 0.4},
      {film(11, 2), {}, {}, {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}, 20.0 / 11}};
  for (const auto& one : cases) {
    const FilmChoice choice = evenly_spread_frames(one.film, one.row, one.options, "a.mp4");
    EXPECT_EQ(choice.frames, one.frames);
    EXPECT_DOUBLE_EQ(choice.fps, one.fps);
  }
  EXPECT_NE(refusal([] {
              (void)evenly_spread_frames(film(1, 25), {}, {}, "a.mp4");
            }).find("a.mp4: expected 2 to 1 frames to be taken of it, two of which make a patch, found 0"),
            std::string::npos);
  EXPECT_NE(refusal([] { (void)evenly_spread_frames(film(10, 25), {.num_frames = 12}, {}, "a.mp4"); }).find("found 12"),
            std::string::npos);
}

TEST(FilmChoice, InternvlTakesTheMiddleOfEachSegment) {
  const auto chosen = [](int64_t frames, const Video& row, const MediaOptions& options) {
    return segment_middles(film(frames, 25), row, options, "a.mp4").frames;
  };
  EXPECT_EQ(chosen(60, {}, {}), (Frames{3, 10, 18, 25, 33, 40, 47, 55}));
  EXPECT_EQ(chosen(5, {}, {}), (Frames{0, 0, 1, 2, 2, 2, 3, 4}));
  EXPECT_EQ(chosen(1, {}, {}), Frames(8, 0));
  EXPECT_EQ(chosen(61, {}, {.video_segments = 4}), (Frames{7, 22, 37, 52}));
  EXPECT_EQ(chosen(250, {.num_frames = 12}, {.video_segments = 4}),
            (Frames{10, 31, 52, 72, 93, 114, 134, 155, 176, 197, 218, 238}));
  for (const Video& row : {Video{.fps = 1}, Video{.min_frames = 2}, Video{.max_frames = 2}}) {
    EXPECT_NE(refusal([&] { (void)chosen(9, row, {}); }).find("which this model does not heed"), std::string::npos);
  }
}

TEST(FilmChoice, MiniCpmTakesOneASecond) {
  const auto chosen = [](int64_t frames, double fps, const MediaOptions& options, const Video& row = {}) {
    return frame_a_second(film(frames, fps), row, options, "a.mp4").frames;
  };
  EXPECT_EQ(chosen(100, 25, {}), (Frames{0, 25, 50, 75}));
  EXPECT_EQ(chosen(90, kNtsc, {}), (Frames{0, 30, 60}));
  EXPECT_EQ(chosen(250, 24.5, {}), (Frames{0, 24, 48, 72, 96, 120, 144, 168, 192, 216, 240}));
  EXPECT_EQ(chosen(250, 25.5, {.max_frames = 4}), (Frames{26, 78, 156, 208}));
  EXPECT_EQ(chosen(2000, 25, {}, {.max_frames = 5}), (Frames{200, 600, 1000, 1400, 1800}));
  EXPECT_EQ(chosen(1, 0.2, {}), (Frames{0}));
  EXPECT_EQ(chosen(250000, 25, {}).size(), 64U);
  for (const Video& row : {Video{.fps = 1}, Video{.num_frames = 2}}) {
    EXPECT_NE(refusal([&] { (void)chosen(9, 1, {}, row); }).find("which this model does not heed"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
