#include "lockstep/data/slice_image.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

SliceImageConfig released() { return {}; }

SliceImageConfig small() { return {.patch = 2, .resolution = 8, .max_slices = 9}; }

Image striped(int64_t width, int64_t height) {
  Image image{.width = width, .height = height, .pixels = {}};
  for (int64_t i = 0; i < width * height * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i / 3 % width * 7));
  return image;
}

TEST(SliceGrid, PartsAPictureWhereItHasMorePixelsThanASlice) {
  EXPECT_EQ(slice_grid({448, 448}, released()), std::nullopt);
  EXPECT_EQ(slice_grid({449, 448}, released()), (TileGrid{2, 1}));
  EXPECT_EQ(slice_grid({448, 449}, released()), (TileGrid{1, 2}));
  EXPECT_EQ(slice_grid({1920, 1080}, released()), (TileGrid{4, 2}));
  EXPECT_EQ(slice_grid({1080, 1920}, released()), (TileGrid{2, 4}));
  EXPECT_EQ(slice_grid({4000, 4000}, released()), (TileGrid{3, 3}));
}

TEST(SliceGrid, HasAsManyPartsAsAreAllowed) {
  EXPECT_EQ(slice_grid({4000, 4000}, {.max_slices = 1}), std::nullopt);
  EXPECT_EQ(slice_grid({4000, 4000}, {.max_slices = 4}), (TileGrid{2, 2}));
  EXPECT_EQ(slice_grid({65000, 10}, released()), (TileGrid{5, 1})) << "one part more than it has the pixels of";
}

TEST(SliceSizes, AreWholePatchesNearThePicturesProportions) {
  // Source: the released processor, by hand.
  EXPECT_EQ(whole_size({100, 50}, released()), (PictureSize{630, 322})) << "a small picture grows";
  EXPECT_EQ(whole_size({1920, 1080}, released()), (PictureSize{602, 336}));
  EXPECT_EQ(part_size({1920, 1080}, {4, 2}, released()), (PictureSize{420, 476}));
  EXPECT_EQ(whole_size({1, 100000}, released()), (PictureSize{14, 141666}));
}

TEST(SlicePixels, TheWholeComesFirstThenThePartsRowByRow) {
  const auto slices = slice_pixels(striped(16, 20), small(), "row");
  ASSERT_EQ(slices.size(), 7U);
  EXPECT_EQ(slices.front().columns, 0);
  const auto part = part_size({16, 20}, {2, 3}, small());
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto& grid = slices[i].facts.at(kPatchGrid);
    EXPECT_EQ(slices[i].shape, (std::vector<int64_t>{grid[0] * grid[1], 12}));
    EXPECT_EQ(static_cast<int64_t>(slices[i].values.size()), grid[0] * grid[1] * 12);
    if (i == 0) continue;
    EXPECT_EQ(slices[i].columns, 2);
    EXPECT_EQ(grid, (std::vector<int64_t>{part.height / 2, part.width / 2}));
  }
}

TEST(SlicePixels, APatchHoldsItsChannelsOneBehindTheOther) {
  Image image = striped(8, 8);  // stays as it is
  const auto slices = slice_pixels(image, small(), "row");
  ASSERT_EQ(slices.size(), 1U);
  const auto level = [](int64_t column) { return (static_cast<float>(column * 7) / 255.0F - 0.5F) / 0.5F; };
  const std::vector<float> second(slices[0].values.begin() + 12, slices[0].values.begin() + 24);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(second[c * 4 + 0], level(2));
    EXPECT_EQ(second[c * 4 + 1], level(3));
    EXPECT_EQ(second[c * 4 + 2], level(2)) << "the next row";
  }
}

TEST(SliceConfig, RefusesWhatNoPictureCouldBeMadeWith) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"patch_size", 0},
                                                                            {"scale_resolution", -1},
                                                                            {"scale_resolution", 1e9},
                                                                            {"max_slice_nums", 100000},
                                                                            {"norm_std", {0, 1, 1}},
                                                                            {"norm_mean", {1}},
                                                                            {"slice_mode", false}}) {
    EXPECT_THROW(read_slice_image_config({{key, value}}, "p.json"), UserError) << key;
  }
  const SliceImageConfig config{.patch = 7, .resolution = 70, .max_slices = 3, .mean = {0.1, 0.2, 0.3}};
  const SliceImageConfig again = read_slice_image_config(slice_image_config_json(config), "p.json");
  EXPECT_EQ(again.patch, 7);
  EXPECT_EQ(again.resolution, 70);
  EXPECT_EQ(again.max_slices, 3);
  EXPECT_EQ(again.mean, config.mean);
}

TEST(SlicePixels, RefusesMorePixelsThanAPictureMayHave) {
  EXPECT_THROW(slice_pixels(striped(1, 30), {.patch = 1, .resolution = 4000}, "row"), UserError) << "too long and thin";
  const SliceImageConfig large{.patch = 14, .resolution = 60000, .max_slices = 9};
  try {
    slice_pixels(striped(30, 30), large, "train.jsonl:3");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("train.jsonl:3"), std::string::npos);
    EXPECT_EQ(e.code(), ExitCode::kData);
  }
}

}  // namespace
}  // namespace lockstep
