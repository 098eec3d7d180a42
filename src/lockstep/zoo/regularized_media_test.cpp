#include "lockstep/zoo/regularized_media.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Edges = std::array<int64_t, 2>;

using Steps = std::vector<Edges>;

/// By _preprocess_image of LLaMA-Factory's BasePlugin.
TEST(RegularSteps, AreLlamaFactorys) {
  EXPECT_EQ(regular_steps({1280, 720}, {256, 65536}), (Steps{{341, 192}}));
  EXPECT_EQ(regular_steps({1920, 1080}, {1024, 589824}), (Steps{{1024, 576}}));
  EXPECT_EQ(regular_steps({333, 777}, {256, 65536}), (Steps{{167, 391}}));
  EXPECT_EQ(regular_steps({640, 480}, {256, 16384}), (Steps{{147, 110}}));
  EXPECT_EQ(regular_steps({8, 8}, {1024, 589824}), (Steps{{32, 32}}));
  EXPECT_EQ(regular_steps({10, 3}, {1024, 589824}), (Steps{{58, 17}}));
  EXPECT_EQ(regular_steps({256, 256}, {256, 65536}), Steps{});
  EXPECT_EQ(regular_steps({100000, 1}, {0, 64}), (Steps{{2529, 1}}));  // never none
}

/// By that of its Qwen2VLPlugin.
TEST(RegularSteps, StretchThinPicturesOfQwens) {
  const RegularSize qwen{1024, 589824, true};
  EXPECT_EQ(regular_steps({400, 13}, qwen), (Steps{{400, 28}}));
  EXPECT_EQ(regular_steps({6000, 20}, qwen), (Steps{{6000, 28}, {5040, 28}}));
  EXPECT_EQ(regular_steps({3, 10}, qwen), (Steps{{17, 58}, {28, 58}}));
  EXPECT_EQ(regular_steps({28, 5601}, qwen), (Steps{{28, 5040}}));
  EXPECT_EQ(regular_steps({640, 480}, qwen), Steps{});
}

/// By its _get_video_sample_indices.
TEST(RegularFrames, AreLlamaFactorys) {
  const auto frames = [](int64_t count, double fps, const MediaOptions& options = {}, const Video& row = {}) {
    return regular_frames({.fps = fps, .frames = count}, row, options).frames;
  };
  EXPECT_EQ(frames(75, 25), (std::vector<int64_t>{0, 14, 29, 44, 59, 74}));
  EXPECT_EQ(frames(60, 24), (std::vector<int64_t>{0, 14, 29, 44, 59}));  // an odd number
  EXPECT_EQ(frames(10, 25), (std::vector<int64_t>{0}));
  EXPECT_EQ(frames(75, 25, {.fps = 1}), (std::vector<int64_t>{0, 37, 74}));
  EXPECT_EQ(frames(3, 1), (std::vector<int64_t>{0, 1, 2}));  // no frame twice
  EXPECT_EQ(frames(5000, 25).size(), 128U);
  EXPECT_EQ(frames(5000, 25, {.fps_max_frames = 7}), (std::vector<int64_t>{0, 833, 1666, 2499, 3332, 4165, 4999}));
  EXPECT_EQ(frames(75, 25, {}, {.fps = 1}), (std::vector<int64_t>{0, 37, 74}));
  EXPECT_DOUBLE_EQ(regular_frames({.fps = 25, .frames = 75}, {}, {}).fps, 2);
}

}  // namespace
}  // namespace lockstep
