// A picture of any size as slices of its own proportions: the whole once, small, and, where the picture is large, a grid of
// parts. Each slice has any number of patches. MiniCPM-V's way, with Pillow's arithmetic.
//
// Example:
//   const auto config = read_slice_image_config(read_json(path), path);
//   std::vector<MediaBlock> slices = slice_pixels(image, config, "train.jsonl:17");   // the whole, then 3 x 2 parts
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/features.h"
#include "lockstep/data/image.h"
#include "lockstep/data/patch_image.h"  // PictureSize
#include "lockstep/data/tile_image.h"   // TileGrid, kMostTiles

namespace lockstep {

/// The fact of a slice: rows and columns of its patches.
inline constexpr const char* kPatchGrid = "patch_grid";

/// The defaults are those of MiniCPMVImageProcessor.
struct SliceImageConfig {
  int64_t patch = 14;        // pixels of a patch's edge
  int64_t resolution = 448;  // a slice has about as many pixels as a square of this edge
  int64_t max_slices = 9;    // beside the whole; 1: the whole alone
  std::array<double, 3> mean = {0.5, 0.5, 0.5}, std = {0.5, 0.5, 0.5};
};

/// `patch_size`, `scale_resolution`, `max_slice_nums`, `norm_mean`, `norm_std`. Throws UserError(kCheckpoint) naming
/// `where`, the key, expected and found; so for `slice_mode` false, in which pictures keep sizes that no patch divides.
SliceImageConfig read_slice_image_config(const Json& json, const std::string& where);
Json slice_image_config_json(const SliceImageConfig& config);

/// How the picture is parted: nothing where the whole is enough. Of grids of about as many parts as the picture has times
/// the pixels of a slice, the one nearest to its proportions. Source: MiniCPM-V 2.6 image_processing_minicpmv.py
/// get_sliced_grid.
std::optional<TileGrid> slice_grid(PictureSize picture, const SliceImageConfig& config);
/// What the whole is resized to. Source: the same, find_best_resize.
PictureSize whole_size(PictureSize picture, const SliceImageConfig& config);
/// What each part of the grid is resized to. Source: the same, get_refine_size.
PictureSize part_size(PictureSize picture, const TileGrid& grid, const SliceImageConfig& config);

/// The whole, then the parts row by row, a block each: float32 [patches, 3 * patch * patch], patches row by row; facts
/// "patch_grid"; `columns` of the parts is that of their grid. Throws UserError(kData) naming `where` when they would have too
/// many pixels.
std::vector<MediaBlock> slice_pixels(const Image& image, const SliceImageConfig& config, const std::string& where);

}  // namespace lockstep
