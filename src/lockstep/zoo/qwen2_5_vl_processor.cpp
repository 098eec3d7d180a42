// Rows for Qwen2.5-VL: images and videos of any size, positions of three axes.
#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "lockstep/zoo/box_text.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/patch_pictures.h"
#include "lockstep/zoo/qwen2_5_vl.h"
#include "lockstep/zoo/window_tower.h"

namespace lockstep::qwen2_5_vl {
namespace {

MropeRules mrope_rules(const HfConfig& config) {
  const HfConfig vision = config.at("vision_config");
  return {.merge = vision.size("spatial_merge_size", 2, {.most = 1024}),
          .tokens_per_second = vision.positive("tokens_per_second", 4)};
}

}  // namespace

std::unique_ptr<Processor> load_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig config = HfConfig::load(place);
  const WindowVisionConfig vision = read_window_vision(config.at("vision_config"));
  const PatchPictures pictures = read_patch_pictures(dir, vision);
  const MediaTokens tokens = read_media_tokens(config);
  ChatParts parts = load_chat_parts(place, qwen2_vl_template());
  const auto rules_for = [&](int32_t token, auto prepare) {
    return MediumRules{
        .placeholder = placeholder_of(parts.tokenizer, token, config.where()),
        .prepare = std::move(prepare),
        .spell = filled_with(token,
                             [merge = vision.merge](const MediaBlock& pixels) { return merged_tokens(pixels, merge); }),
        .stretches_thin = true};
  };
  parts.media.boxes = qwen_boxes(BoxUnit::kPixels);
  parts.media.boxes.resized = [images = pictures.images](std::array<int64_t, 2> edges, const MediaOptions& options,
                                                         const std::string& where) {
    return patch_edges(edges, images, options, where);
  };
  parts.media.kinds[Modality::kImage] = rules_for(
      tokens.image,
      [images = pictures.images](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
        return std::vector{patch_picture(medium, images, options, where)};
      });
  parts.media.kinds[Modality::kVideo] = rules_for(
      tokens.video,
      [videos = pictures.videos](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
        return std::vector{patch_film(medium, videos, options, where)};
      });
  parts.media.kinds[Modality::kVideo].film = patch_film_rules(pictures.videos);
  parts.media.place = [rules = mrope_rules(config)](Features& features) { set_mrope_positions(features, rules); };
  return std::make_unique<ChatProcessor>(std::move(parts));
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  Features row = typical_patch_row(read_window_vision(config.at("vision_config")), tokens);
  set_mrope_positions(row, mrope_rules(config));
  return row;
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  const MediaTokens tokens = read_media_tokens(config);
  const MropeRules rules = mrope_rules(config);
  std::vector<Features> rows = rows_of_hf(inputs);
  deal_media(rows, {recorded_pictures(inputs, tokens.image, rules.merge),
                    recorded_films(inputs, tokens.video, rules.merge, "second_per_grid_ts")});
  for (auto& row : rows) set_mrope_positions(row, rules);
  return rows;
}

}  // namespace lockstep::qwen2_5_vl
