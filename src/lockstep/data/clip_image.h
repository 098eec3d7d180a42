// An image as a CLIP tower takes it: resized, cut, scaled and normalised as preprocessor_config.json says.
//
// Example:
//   const auto config = read_clip_image_config(read_json(dir / "preprocessor_config.json"), "preprocessor_config.json");
//   const std::string row = "train.jsonl:17";
//   MediaBlock pixels = clip_pixels(load_image(path, row), config, row);   // [1, 3, 336, 336]
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/data/features.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_keys.h"

namespace lockstep {

/// The defaults are those of CLIPImageProcessor: keys that a file leaves out keep them.
struct ClipImageConfig : PixelScale {
  bool do_resize = true, do_center_crop = true;
  bool do_pad = false;          // first padded to a square with the mean colour (LLaVA's image_aspect_ratio "pad")
  int64_t shortest_edge = 224;  // the shorter edge after resizing; 0: resize to exactly width x height
  int64_t width = 0, height = 0;
  int64_t crop_width = 224, crop_height = 224;
  Resample resample = Resample::kBicubic;
};

/// Reads the old and new spellings (`size`: number, {shortest_edge} or {height, width}). Throws UserError(kCheckpoint)
/// naming `where`, the key, expected and found.
ClipImageConfig read_clip_image_config(const Json& json, const std::string& where);
Json clip_image_config_json(const ClipImageConfig& config);

/// float32 [1, 3, H, W]. Throws UserError(kData) naming `where` when the resized picture would have too many pixels.
/// Source: transformers 5.23 models/clip and models/llava (do_pad), image_processing_*.py, and
/// image_processing_backends.py.
MediaBlock clip_pixels(const Image& image, const ClipImageConfig& config, const std::string& where);

}  // namespace lockstep
