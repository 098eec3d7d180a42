// Rows for Qwen2.5-VL: images and videos of any size, positions of three axes.
#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/patch_image.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/qwen2_5_vl.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep::qwen2_5_vl {
namespace {

MropeRules mrope_rules(const HfConfig& config) {
  const HfConfig vision = config.at("vision_config");
  return {.merge = vision.size("spatial_merge_size", 2, {.most = 1024}),
          .tokens_per_second = vision.positive("tokens_per_second", 4)};
}

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

/// A film from its file has the limits of qwen_vl_utils where nobody says others, within those of the checkpoint.
PatchImageConfig limited_for_film(const PatchImageConfig& config, size_t frames, MediaOptions options) {
  const int64_t token = config.patch * config.merge * config.patch * config.merge;  // pixels that become one
  PatchImageConfig usual = config;
  usual.max_pixels = std::min(config.max_pixels, 768 * token);
  usual.min_pixels = std::min(128 * token, usual.max_pixels);
  if (options.video_total_pixels <= 0) options.video_total_pixels = 24576 * token;
  return limited_for_video(usual, frames, options);
}

MediaBlock film_pixels(const LoadedMedium& medium, const PatchImageConfig& videos, const MediaOptions& options,
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

FilmRules film_rules(const PatchImageConfig& videos) {
  return {.choose = evenly_spread_frames,
          .shrink =
              [videos](const Image& frame, size_t frames, const MediaOptions& options, const std::string& where) {
                return patch_resized(frame, limited_for_film(videos, frames, options), where);
              },
          .heeds_pixels = true};
}

PatchImageConfig picture_config_of(const std::filesystem::path& dir, const std::vector<std::string>& files,
                                   const char* part, const WindowVisionConfig& vision) {
  const HfConfig file = picture_config(dir, files, part);
  const PatchImageConfig config = read_patch_image_config(file.json(), file.where());
  if (config.patch != vision.patch || config.merge != vision.merge || config.temporal_patch != vision.temporal_patch) {
    throw checkpoint_error(fmt::format(
        "{}: expected patch_size {}, merge_size {}, temporal_patch_size {} (config.json vision_config), found "
        "{}, {}, {}",
        file.where(), vision.patch, vision.merge, vision.temporal_patch, config.patch, config.merge,
        config.temporal_patch));
  }
  return config;
}

std::vector<Grid> recorded_grids(const HfInputs& inputs, const char* name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? std::vector<Grid>{} : grids_of(found->second);
}

/// The recorded media of one kind, taken one after another.
struct Recorded {
  const HfInputs& inputs;
  const char* pixels;
  std::vector<Grid> grids;
  size_t next = 0;
  int64_t begin = 0;  // of the next medium's patches

  MediaBlock take() {
    check(next < grids.size(), "recorded inputs: a grid for every medium among the tokens");
    const auto& [frames, high, wide] = grids[next++];
    const int64_t patches = frames * high * wide;
    MediaBlock block = block_of(inputs.at(pixels), begin, begin + patches);
    block.facts["grid_thw"] = {frames, high, wide};
    begin += patches;
    return block;
  }
};

}  // namespace

std::unique_ptr<Processor> load_processor(const std::filesystem::path& dir) {
  const HfConfig config = HfConfig::load(dir);
  const WindowVisionConfig vision = read_vision_config(config.at("vision_config"));
  const auto images = picture_config_of(dir, {"preprocessor_config.json"}, "image_processor", vision);
  auto videos =
      picture_config_of(dir, {"video_preprocessor_config.json", "preprocessor_config.json"}, "video_processor", vision);
  videos.backend = ImageBackend::kTorchvision;  // whatever images follow: transformers has no other way for videos
  const MediaTokens tokens = read_media_tokens(config);
  ChatParts parts = load_chat_parts(dir, qwen2_vl_template());
  const auto rules_for = [&](int32_t token, auto prepare) {
    return MediumRules{.placeholder = placeholder_of(parts.tokenizer, token, config.where()),
                       .prepare = std::move(prepare),
                       .spell = filled_with(token, [merge = vision.merge](const MediaBlock& pixels) {
                         return pixels.shape[0] / (merge * merge);
                       })};
  };
  parts.media.kinds[Modality::kImage] = rules_for(
      tokens.image, [images](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
        return std::vector{patch_pixels(medium.frames, limited(images, options.min_pixels, options.max_pixels), where)};
      });
  parts.media.kinds[Modality::kVideo] = rules_for(
      tokens.video, [videos](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
        return std::vector{film_pixels(medium, videos, options, where)};
      });
  parts.media.kinds[Modality::kVideo].film = film_rules(videos);
  parts.media.place = [rules = mrope_rules(config)](Features& features) { set_mrope_positions(features, rules); };
  return std::make_unique<ChatProcessor>(std::move(parts));
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  constexpr int64_t kPixels = 448;  // of an edge
  const WindowVisionConfig vision = read_vision_config(config.at("vision_config"));
  const int64_t merged = std::max<int64_t>(1, kPixels / (vision.patch * vision.merge)), edge = merged * vision.merge;
  Features row = typical_picture_row(
      tokens, {.shape = {edge * edge, vision.patch_values()}, .facts = {{"grid_thw", {1, edge, edge}}}},
      merged * merged);
  set_mrope_positions(row, mrope_rules(config));
  return row;
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  const MediaTokens tokens = read_media_tokens(config);
  const MropeRules rules = mrope_rules(config);
  Recorded images{inputs, "pixel_values", recorded_grids(inputs, "image_grid_thw")};
  Recorded videos{inputs, "pixel_values_videos", recorded_grids(inputs, "video_grid_thw")};
  std::vector<Features> rows = rows_of_hf(inputs);
  for (auto& row : rows) {
    for (size_t i = 0; i < row.input_ids.size();) {
      const bool video = row.input_ids[i] == tokens.video;
      if (!video && row.input_ids[i] != tokens.image) {
        ++i;
        continue;
      }
      MediaBlock block = video ? videos.take() : images.take();
      if (video) {
        block.modality = Modality::kVideo;
        block.step_seconds = inputs.at("second_per_grid_ts")[static_cast<int64_t>(videos.next - 1)].item<double>();
      }
      const int64_t count = block.shape[0] / (rules.merge * rules.merge);
      for (int64_t k = 0; k < count; ++k, ++i) block.places.push_back(static_cast<int32_t>(i));
      row.media.push_back(std::move(block));
    }
    set_mrope_positions(row, rules);
  }
  return rows;
}

}  // namespace lockstep::qwen2_5_vl
