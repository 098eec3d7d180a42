// A picture of any size, or the frames of a video, as a Qwen2-VL tower takes them: resized to whole blocks of patches
// within a budget of pixels, cut into rows of patches.
//
// Example:
//   const auto config = read_patch_image_config(read_json(path), path);
//   MediaBlock rows = patch_pixels({image}, config);   // [16 * 20, 3 * 2 * 14 * 14], facts "grid_thw" {1, 16, 20}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/features.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_keys.h"

namespace lockstep {

/// The defaults are those of Qwen2VLImageProcessor.
struct PatchImageConfig : PixelScale {
  bool do_resize = true;
  int64_t patch = 14, temporal_patch = 2, merge = 2;  // pixels of a patch, frames of a patch, patches of a block's edge
  int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;
  Resample resample = Resample::kBicubic;
};

/// Old: min_pixels, max_pixels. New: size {shortest_edge, longest_edge}, which count pixels too. `usual`: what a key that is
/// left out means. Throws
/// UserError(kCheckpoint) naming `where`, the key, expected and found.
PatchImageConfig read_patch_image_config(const Json& json, const std::string& where,
                                         const PatchImageConfig& usual = {});
Json patch_image_config_json(const PatchImageConfig& config);

struct PictureSize {
  int64_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};
/// Edges that are multiples of patch * merge, min_pixels to max_pixels in all, near to the picture's proportions.
/// Throws UserError(kData) naming `where` beyond 200 : 1. Source: transformers 5.23 models/qwen2_vl smart_resize.
PictureSize patch_size_of(PictureSize given, const PatchImageConfig& config, const std::string& where);

/// A picture as patch_pixels cuts it. Throws UserError(kData) naming `where`.
Image patch_resized(const Image& frame, const PatchImageConfig& config, const std::string& where);

/// One image, or the frames of a video in order, all of one size; a last group of frames that is not full repeats its
/// last. float32 [patches, 3 * temporal_patch * patch * patch], block by block; facts: grid_thw {t, h, w} in patches.
/// Throws UserError(kData) naming `where`.
MediaBlock patch_pixels(const std::vector<Image>& frames, const PatchImageConfig& config, const std::string& where);

}  // namespace lockstep
