#include "lockstep/zoo/patch_pictures.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

PatchImageConfig limited(PatchImageConfig config, int64_t min_pixels, int64_t max_pixels) {
  if (min_pixels > 0) config.min_pixels = min_pixels;
  if (max_pixels > 0) config.max_pixels = max_pixels;
  return config;
}

/// A budget for all frames is shared out evenly, but for a little more than the least a frame may have.
PatchImageConfig limited_for_video(const PatchImageConfig& config, size_t frames, const MediaOptions& options) {
  PatchImageConfig made = limited(config, options.video_min_pixels, options.video_max_pixels);
  if (options.video_total_pixels <= 0) return made;
  const int64_t share = options.video_total_pixels * made.temporal_patch / static_cast<int64_t>(frames);
  const auto least = static_cast<int64_t>(static_cast<double>(made.min_pixels) * 1.05);
  made.max_pixels = std::max(std::min(made.max_pixels, share), least);
  return made;
}

/// A film from its file has the limits of qwen_vl_utils 0.0.14 where nobody says others, within those of the checkpoint.
PatchImageConfig limited_for_film(const PatchImageConfig& config, size_t frames, MediaOptions options) {
  const int64_t token = config.patch * config.merge * config.patch * config.merge;  // pixels that become one
  PatchImageConfig usual = config;
  usual.max_pixels = std::min(config.max_pixels, 768 * token);
  usual.min_pixels = std::min(128 * token, usual.max_pixels);
  if (options.video_total_pixels <= 0) options.video_total_pixels = 115200 * token;
  PatchImageConfig made = limited_for_video(usual, frames, options);
  if (options.film_max_pixels > 0) made.max_pixels = std::min(made.max_pixels, options.film_max_pixels);
  return made;
}

/// Of Qwen2VLVideoProcessor, where nothing is said of pixels.
PatchImageConfig usual_film() {
  PatchImageConfig usual;
  usual.min_pixels = 128 * 28 * 28;
  usual.max_pixels = 768 * 28 * 28;
  return usual;
}

PatchImageConfig config_of(const std::filesystem::path& dir, const std::vector<std::string>& files, const char* part,
                           const WindowVisionConfig& vision, const PatchImageConfig& usual = {}) {
  const HfConfig file = picture_config(dir, files, part);
  const PatchImageConfig config = read_patch_image_config(file.json(), file.where(), usual);
  if (config.patch != vision.patch || config.merge != vision.merge || config.temporal_patch != vision.temporal_patch) {
    throw checkpoint_error(fmt::format(
        "{}: expected patch_size {}, merge_size {}, temporal_patch_size {} (config.json vision_config), found "
        "{}, {}, {}",
        file.where(), vision.patch, vision.merge, vision.temporal_patch, config.patch, config.merge,
        config.temporal_patch));
  }
  return config;
}

RecordedMedia recorded(const HfInputs& inputs, const std::string& pixels, const std::string& grids, int32_t token,
                       int64_t merge) {
  RecordedMedia media{.token = token};
  if (!inputs.contains(grids)) return media;
  int64_t begin = 0;
  for (const auto& [frames, high, wide] : grids_of(inputs.at(grids))) {
    const int64_t patches = frames * high * wide;
    MediaBlock block = block_of(inputs.at(pixels), begin, begin + patches);
    block.facts["grid_thw"] = {frames, high, wide};
    media.add(std::move(block), patches / (merge * merge));
    begin += patches;
  }
  return media;
}

}  // namespace

PatchPictures read_patch_pictures(const std::filesystem::path& dir, const WindowVisionConfig& vision) {
  PatchPictures made{.images = config_of(dir, {"preprocessor_config.json"}, "image_processor", vision),
                     .videos = config_of(dir, {"video_preprocessor_config.json", "preprocessor_config.json"},
                                         "video_processor", vision, usual_film())};
  made.videos.backend = ImageBackend::kTorchvision;  // whatever images follow: transformers has no other way for videos
  return made;
}

MediaBlock patch_picture(const LoadedMedium& medium, const PatchImageConfig& images, const MediaOptions& options,
                         const std::string& where) {
  return patch_pixels(medium.frames, limited(images, options.min_pixels, options.max_pixels), where);
}

std::array<int64_t, 2> patch_edges(std::array<int64_t, 2> edges, const PatchImageConfig& images,
                                   const MediaOptions& options, const std::string& where) {
  const PatchImageConfig limits = limited(images, options.min_pixels, options.max_pixels);
  if (!limits.do_resize) return edges;
  const PictureSize size = patch_size_of({edges[0], edges[1]}, limits, where);
  return {size.width, size.height};
}

MediaBlock patch_film(const LoadedMedium& medium, const PatchImageConfig& videos, const MediaOptions& options,
                      const std::string& where) {
  const size_t count = std::max<size_t>(1, medium.frames.size());
  PatchImageConfig limits =
      medium.of_file ? limited_for_film(videos, count, options) : limited_for_video(videos, count, options);
  if (medium.of_file) limits.do_resize = false;  // each frame has been, as soon as it was read
  MediaBlock block = patch_pixels(medium.frames, limits, where);
  block.modality = Modality::kVideo;
  block.step_seconds = static_cast<double>(limits.temporal_patch) / medium.fps;
  return block;
}

FilmRules patch_film_rules(const PatchImageConfig& videos) {
  return {.choose = evenly_spread_frames,
          .shrink =
              [videos](const Image& frame, size_t frames, const MediaOptions& options, const std::string& where) {
                return patch_resized(frame, limited_for_film(videos, frames, options), where);
              },
          .heeds_pixels = true};
}

int64_t merged_tokens(const MediaBlock& pixels, int64_t merge) { return pixels.shape[0] / (merge * merge); }

RecordedMedia recorded_pictures(const HfInputs& inputs, int32_t token, int64_t merge) {
  return recorded(inputs, "pixel_values", "image_grid_thw", token, merge);
}

RecordedMedia recorded_films(const HfInputs& inputs, int32_t token, int64_t merge, const std::string& seconds) {
  RecordedMedia media = recorded(inputs, "pixel_values_videos", "video_grid_thw", token, merge);
  for (size_t i = 0; i < media.blocks.size(); ++i) {
    media.blocks[i].modality = Modality::kVideo;
    media.blocks[i].step_seconds = inputs.at(seconds)[static_cast<int64_t>(i)].item<double>();
  }
  return media;
}

Features typical_patch_row(const WindowVisionConfig& vision, int64_t tokens) {
  constexpr int64_t kPixels = 448;  // of an edge
  const int64_t merged = std::max<int64_t>(1, kPixels / (vision.patch * vision.merge)), edge = merged * vision.merge;
  return typical_picture_row(tokens,
                             {.shape = {edge * edge, vision.patch_values()}, .facts = {{"grid_thw", {1, edge, edge}}}},
                             merged * merged);
}

}  // namespace lockstep
