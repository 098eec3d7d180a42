#include "lockstep/data/patch_image.h"

#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Image plain(int64_t width, int64_t height, uint8_t level) {
  return {
      .width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3), level)};
}

/// Levels as they are, so that values can be followed.
PatchImageConfig raw(int64_t patch) {
  PatchImageConfig config;
  config.do_rescale = config.do_normalize = config.do_resize = false;
  config.patch = patch;
  return config;
}

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PatchSize, IsAMultipleOfBlocksWithinTheBudget) {
  const PatchImageConfig config = read_patch_image_config({{"min_pixels", 3136}, {"max_pixels", 12845056}}, "file");
  const auto size = [&](int64_t width, int64_t height) { return patch_size_of({width, height}, config, "row"); };
  EXPECT_EQ(size(224, 224), (PictureSize{224, 224}));
  EXPECT_EQ(size(42, 70), (PictureSize{56, 56}));  // 1.5 and 2.5 blocks: halves go to the even number
  EXPECT_EQ(size(551, 2332), (PictureSize{560, 2324}));
  EXPECT_EQ(size(10, 10), (PictureSize{56, 56}));          // grown to min_pixels
  EXPECT_EQ(size(8000, 6000), (PictureSize{4116, 3080}));  // shrunk below max_pixels
  EXPECT_NE(complaint([&] { size(2010, 10); }).find("row: expected a picture at most 200 times"), std::string::npos);
}

TEST(PatchPixels, GoBlockByBlockAndRepeatAnImageForBothFrames) {
  Image image = plain(8, 4, 0);
  for (size_t i = 0; i < 32; ++i) image.pixels[3 * i] = static_cast<uint8_t>(i);  // red counts, row by row
  const MediaBlock block = patch_pixels({image}, raw(2), "row");
  EXPECT_EQ(block.shape, (std::vector<int64_t>{8, 24}));
  EXPECT_EQ(block.facts.at("grid_thw"), (std::vector<int64_t>{1, 2, 4}));
  const auto red = [&](size_t patch) {
    return std::vector<float>(block.values.begin() + static_cast<int64_t>(patch) * 24,
                              block.values.begin() + static_cast<int64_t>(patch) * 24 + 8);
  };
  EXPECT_EQ(red(0), (std::vector<float>{0, 1, 8, 9, 0, 1, 8, 9}));
  EXPECT_EQ(red(1), (std::vector<float>{2, 3, 10, 11, 2, 3, 10, 11}));
  EXPECT_EQ(red(2), (std::vector<float>{16, 17, 24, 25, 16, 17, 24, 25}));
  EXPECT_EQ(red(4), (std::vector<float>{4, 5, 12, 13, 4, 5, 12, 13}));  // the second block
}

TEST(PatchPixels, AVideosLastFrameFillsItsLastGroup) {
  const MediaBlock block = patch_pixels({plain(4, 4, 1), plain(4, 4, 2), plain(4, 4, 3)}, raw(2), "row");
  EXPECT_EQ(block.facts.at("grid_thw"), (std::vector<int64_t>{2, 2, 2}));
  ASSERT_EQ(block.shape, (std::vector<int64_t>{8, 24}));
  EXPECT_EQ(block.values[0], 1);
  EXPECT_EQ(block.values[4], 2);
  EXPECT_EQ(block.values[4 * 24], 3);
  EXPECT_EQ(block.values[4 * 24 + 4], 3);
}

TEST(PatchPixels, FramesOfTwoSizesAreRefusedByName) {
  const std::string message = complaint([] {
    patch_pixels({plain(4, 4, 1), plain(4, 8, 1)}, raw(2), "row 3: videos[0]");
  });
  EXPECT_NE(message.find("row 3: videos[0]: expected frames of one size, 4x4, found 4x8 in frame 1"), std::string::npos)
      << message;
  EXPECT_NE(complaint([] { patch_pixels({}, raw(2), "row"); }).find("at least one frame"), std::string::npos);
  EXPECT_NE(complaint([] { patch_pixels({plain(6, 4, 0)}, raw(2), "row"); }).find("multiples of 4"), std::string::npos);
}

TEST(PatchImageConfig, ReadsBothSpellingsOfTheBudgetAndComesBack) {
  EXPECT_EQ(read_patch_image_config({{"size", {{"shortest_edge", 100}, {"longest_edge", 200}}}}, "f").max_pixels, 200);
  const PatchImageConfig old = read_patch_image_config({{"min_pixels", 7}, {"patch_size", 16}}, "f");
  EXPECT_EQ(old.min_pixels, 7);
  EXPECT_EQ(read_patch_image_config(patch_image_config_json(old), "f").patch, 16);
  const PatchImageConfig slow = read_patch_image_config({{"use_fast", false}}, "f");
  EXPECT_EQ(read_patch_image_config(patch_image_config_json(slow), "f").backend, ImageBackend::kPillow);
  EXPECT_NE(complaint([] {
              read_patch_image_config({{"size", 224}}, "preprocessor_config.json");
            }).find("preprocessor_config.json: size: expected"),
            std::string::npos);
}

TEST(PatchImageConfig, ASizeWithoutEdgesIsRefusedWhereNothingElseBoundsThePictures) {
  const Json size{{"min_pixels", 3136}, {"max_pixels", 9000}};
  EXPECT_NE(complaint([&] {
              read_patch_image_config({{"size", size}}, "f");
            }).find("size: expected {\"shortest_edge\""),
            std::string::npos);
  // As Qwen2-VL was published.
  const PatchImageConfig published =
      read_patch_image_config({{"size", size}, {"min_pixels", 3136}, {"max_pixels", 9000}}, "f");
  EXPECT_EQ(published.max_pixels, 9000);
}

}  // namespace
}  // namespace lockstep
