// A picture of any size as tiles of one size, in a grid near to its proportions, and the whole once more as a small one.
//
// Example:
//   const auto config = read_tile_image_config(read_json(path), path);
//   MediaBlock tiles = tile_pixels(image, config, "train.jsonl:17");   // [7, 3, 448, 448]: a grid of 3 x 2, and the whole
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/data/features.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_keys.h"

namespace lockstep {

/// Of a picture: all grids of as many are compared for each.
inline constexpr int64_t kMostTiles = 1024;

/// The defaults are those of GotOcr2ImageProcessor as InternVLProcessor calls it.
struct TileImageConfig : PixelScale {
  int64_t width = 384, height = 384;  // of a tile
  int64_t min_tiles = 1, max_tiles = 12;
  bool tiles = true;      // false: the whole picture is one
  bool thumbnail = true;  // the whole behind its tiles, where they are several
  Resample resample = Resample::kBicubic;
};

/// `size` {height, width}, min_patches, max_patches. Throws UserError(kCheckpoint) naming `where`, the key, expected and
/// found.
TileImageConfig read_tile_image_config(const Json& json, const std::string& where);
Json tile_image_config_json(const TileImageConfig& config);

struct TileGrid {
  int64_t columns = 1, rows = 1;
  bool operator==(const TileGrid&) const = default;
};
/// Of min to max tiles the grid nearest to the picture's proportions; of two that are as near the larger, where the picture
/// fills more than half of it. Source: transformers 5.23 models/got_ocr2 get_optimal_tiled_canvas.
TileGrid tile_grid(int64_t width, int64_t height, const TileImageConfig& config);

/// float32 [tiles, 3, height, width], row by row, then the whole. Throws UserError(kData) naming `where` when the grid
/// would have too many pixels.
MediaBlock tile_pixels(const Image& image, const TileImageConfig& config, const std::string& where);

}  // namespace lockstep
