#include "lockstep/zoo/prepared_video.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/base64.h"
#include "lockstep/data/image.h"
#include "lockstep/data/test_images.h"
#include "lockstep/zoo/regularized_media.h"

namespace lockstep {
namespace {

using Edges = std::array<int64_t, 2>;

/// The sizes that a family gets its frames in, which heeds none by itself.
struct Seen {
  std::vector<Edges> edges;

  MediumRules rules() {
    MediumRules rules{.placeholder = "<video>", .prepare = {}, .spell = {}};
    rules.prepare = [this](const LoadedMedium& medium, const MediaOptions&, const std::string&) {
      for (const Image& frame : medium.frames) edges.push_back({frame.width, frame.height});
      return std::vector<MediaBlock>{};
    };
    return rules;
  }
};

Video listed(int64_t width, int64_t height) {
  return {.frames = {"data:image/png;base64," + encode_base64(encode_png(drawn_image("noise", width, height, 1)))}};
}

std::string refusal_of(const Video& video, const MediaOptions& options) {
  Seen seen;
  try {
    (void)prepared_video(video, seen.rules(), options, "rows.jsonl:3");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PreparedVideo, ARowsOwnBoundsHoldWhereFilmsAreTakenAsLlamaFactoryTakesThem) {
  const MediaOptions options{.as_llama_factory = true, .video_min_pixels = 256, .video_max_pixels = 65536};
  Video video = listed(80, 40);
  Seen seen;
  (void)prepared_video(video, seen.rules(), options, "row");
  video.max_pixels = 800;
  (void)prepared_video(video, seen.rules(), options, "row");
  EXPECT_EQ(seen.edges, (std::vector<Edges>{{80, 40}, {40, 20}}));
  MediaOptions of_film = options;
  of_film.film_max_pixels = 800;  // as a row with a file says it
  EXPECT_EQ(regular_frame(of_film, false).most, 800);
  EXPECT_EQ(regular_frame(options, false).most, 65536);
}

TEST(PreparedVideo, SizesThatNothingHeedsAreRefused) {
  Video video = listed(8, 8);
  const MediaOptions regular{.as_llama_factory = true};
  EXPECT_EQ(refusal_of(video, regular), "");
  video.total_pixels = 1000;
  EXPECT_NE(refusal_of(video, regular).find("rows.jsonl:3: expected a video without total_pixels"), std::string::npos);
  video = listed(8, 8);
  video.max_pixels = 1000;
  EXPECT_EQ(refusal_of(video, regular), "");
  EXPECT_NE(refusal_of(video, {}).find("which this model does not heed"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
