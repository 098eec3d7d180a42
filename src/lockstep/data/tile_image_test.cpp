#include "lockstep/data/tile_image.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TileImageConfig tiles_of(int64_t edge, int64_t most) {
  TileImageConfig config;
  config.width = config.height = edge;
  config.max_tiles = most;
  return config;
}

TEST(TileGrid, IsNearestToThePicturesProportions) {
  const auto grid = [](int64_t width, int64_t height, int64_t most) {
    return tile_grid(width, height, tiles_of(448, most));
  };
  EXPECT_EQ(grid(800, 600, 12), (TileGrid{4, 3}));
  EXPECT_EQ(grid(100, 1000, 12), (TileGrid{1, 10}));
  EXPECT_EQ(grid(1000, 100, 6), (TileGrid{6, 1}));
  EXPECT_EQ(grid(5, 7, 1), (TileGrid{1, 1}));
}

TEST(TileGrid, OfTwoThatAreAsNearTakesTheLargerForALargePictureAlone) {
  EXPECT_EQ(tile_grid(448, 448, tiles_of(448, 12)), (TileGrid{1, 1}));  // fills exactly half of nothing larger
  EXPECT_EQ(tile_grid(900, 900, tiles_of(448, 12)), (TileGrid{2, 2}));
  EXPECT_EQ(tile_grid(2000, 2000, tiles_of(448, 12)), (TileGrid{3, 3}));
}

Image striped(int64_t width, int64_t height) {
  Image image{.width = width, .height = height, .pixels = {}};
  for (int64_t i = 0; i < width * height * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i / 3 % width));
  return image;
}

TEST(TilePixels, StandRowByRowWithTheWholeBehindThem) {
  TileImageConfig config = tiles_of(4, 6);
  config.do_normalize = config.do_rescale = false;
  config.resample = Resample::kNearest;
  const MediaBlock block = tile_pixels(striped(8, 4), config, "row");
  ASSERT_EQ(block.shape, (std::vector<int64_t>{3, 3, 4, 4}));
  const auto first_row = [&](size_t tile) {
    const auto begin = block.values.begin() + static_cast<std::ptrdiff_t>(tile * 48);
    return std::vector<float>(begin, begin + 4);
  };
  EXPECT_EQ(first_row(0), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(first_row(1), (std::vector<float>{4, 5, 6, 7}));
  EXPECT_EQ(first_row(2).size(), 4U);
  config.thumbnail = false;
  EXPECT_EQ(tile_pixels(striped(8, 4), config, "row").shape[0], 2);
}

TEST(TilePixels, RefusesWhatWouldNotFit) {
  EXPECT_THROW(tile_pixels(striped(2, 1), tiles_of(16384, 4), "row"), UserError);
  EXPECT_THROW(read_tile_image_config({{"max_patches", 0}}, "file"), UserError);
  EXPECT_THROW(read_tile_image_config({{"min_patches", 4}, {"max_patches", 3}}, "file"), UserError);
  EXPECT_THROW(read_tile_image_config({{"size", "large"}}, "file"), UserError);
}

}  // namespace
}  // namespace lockstep
