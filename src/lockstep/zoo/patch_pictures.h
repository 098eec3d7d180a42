// How the families of Qwen2.5-VL's kind make rows of patches of pictures and films, and how recorded ones become media again.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/data/patch_image.h"
#include "lockstep/data/processor.h"
#include "lockstep/model/layers/window_vision.h"
#include "lockstep/zoo/hf_inputs.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

struct PatchPictures {
  PatchImageConfig images, videos;
};
/// Of preprocessor_config.json, and of video_preprocessor_config.json where there is one. Throws UserError(kCheckpoint) unless
/// they fit the tower.
PatchPictures read_patch_pictures(const std::filesystem::path& dir, const WindowVisionConfig& vision);

/// A picture within what the person asks.
MediaBlock patch_picture(const LoadedMedium& medium, const PatchImageConfig& images, const MediaOptions& options,
                         const std::string& where);
/// Edges of what it is cut from.
std::array<int64_t, 2> patch_edges(std::array<int64_t, 2> edges, const PatchImageConfig& images,
                                   const MediaOptions& options, const std::string& where);
/// A film within what the person asks; it knows how many seconds a group of its frames takes.
MediaBlock patch_film(const LoadedMedium& medium, const PatchImageConfig& videos, const MediaOptions& options,
                      const std::string& where);
/// How films are taken from their files.
FilmRules patch_film_rules(const PatchImageConfig& videos);
/// Tokens that a tower's merger makes of it.
int64_t merged_tokens(const MediaBlock& pixels, int64_t merge);

/// pixel_values with image_grid_thw as media that fill `token`.
RecordedMedia recorded_pictures(const HfInputs& inputs, int32_t token, int64_t merge);
/// pixel_values_videos with video_grid_thw; `seconds`: the input that has the seconds of each film's groups of frames.
RecordedMedia recorded_films(const HfInputs& inputs, int32_t token, int64_t merge, const std::string& seconds);

/// A row of so many tokens with a picture of 448 x 448 pixels: 1024 patches of 14 x 14.
Features typical_patch_row(const WindowVisionConfig& vision, int64_t tokens);

}  // namespace lockstep
