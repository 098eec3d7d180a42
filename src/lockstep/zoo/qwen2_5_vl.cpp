// Qwen2.5-VL: a window-attention tower for pictures of any size -> a merger -> Qwen2 with positions of three axes.
// Source: transformers 5.23 models/qwen2_5_vl.
#include "lockstep/zoo/qwen2_5_vl.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace qwen2_5_vl {
namespace {

const std::string kTower = "visual";

/// What Qwen2_5_VLTextConfig assumes.
constexpr TextDefaults kText{.vocab = 152064,
                             .hidden = 8192,
                             .mlp = 29568,
                             .layers = 80,
                             .heads = 64,
                             .kv_heads = 8,
                             .max_positions = 32768,
                             .norm_eps = 1e-5,
                             .rope_theta = 1e6,
                             .qkv_bias = true,
                             .sliding_window_flag = true};

/// One half of the head's pairs turns with the row, the other with the column.
RopeConfig vision_rope(const HfConfig& config, int64_t head_dim) {
  const HfConfig rope = config.at("rope_parameters");
  const std::string type = rope.text("rope_type", "axial");
  if (type != "axial") {
    throw checkpoint_error(fmt::format("{}: rope_type: expected axial, found \"{}\"", rope.where(), type));
  }
  const auto theta = static_cast<float>(rope.positive("rope_theta", 10000.0));
  const int64_t half = head_dim / 2;
  RopeConfig made{.inverse_frequencies = {}, .sections = {half / 2, half / 2}};
  for (int axis = 0; axis < 2; ++axis) {
    for (int64_t i = 0; i < half; i += 2) {  // in float32, as the model was trained with
      made.inverse_frequencies.push_back(1.0F / std::pow(theta, static_cast<float>(i) / static_cast<float>(half)));
    }
  }
  return made;
}

void check_vision(const HfConfig& config, const WindowVisionConfig& vision) {
  const auto expect = [&](bool holds, const char* key, const std::string& expected, int64_t found) {
    if (holds) return;
    throw checkpoint_error(fmt::format("{}: {}: expected {}, found {}", config.where(), key, expected, found));
  };
  expect(vision.hidden % vision.heads == 0, "hidden_size", fmt::format("a multiple of num_heads {}", vision.heads),
         vision.hidden);
  const int64_t head = vision.hidden / vision.heads;
  expect(head % 4 == 0, "hidden_size / num_heads", "a multiple of 4 (pairs of rows and of columns)", head);
  expect(vision.channels == 3, "in_channels", "3", vision.channels);
  expect(vision.window > 0, "window_size", fmt::format("at least {} (one token)", vision.patch * vision.merge),
         config.integer("window_size", 112));
  for (const int64_t layer : vision.whole_frame_layers) {
    expect(layer >= 0 && layer < vision.layers, "fullatt_block_indexes", fmt::format("0 to {}", vision.layers - 1),
           layer);
  }
}

/// Old files hold the text's keys at the root, new ones in text_config.
HfConfig text_part(const HfConfig& config) { return config.has("text_config") ? config.at("text_config") : config; }

TextConfig read_text(const HfConfig& config) {
  const HfConfig part = text_part(config);
  TextConfig text = read_text_config(part, kText);
  text.tied = text.tied || config.flag("tie_word_embeddings", false);
  if (text.rope.sections.empty()) text.rope.sections = {16, 24, 24};
  const int64_t pairs = std::accumulate(text.rope.sections.begin(), text.rope.sections.end(), int64_t{0});
  const bool negative = std::ranges::any_of(text.rope.sections, [](int64_t size) { return size < 0; });
  if (negative || pairs != text.head_dim / 2 || text.rope.sections.size() % 3 != 0) {
    throw checkpoint_error(
        fmt::format("{}: mrope_section: expected sections for three axes that sum up to {} (half a head), "
                    "found a sum of {} in {}",
                    part.where(), text.head_dim / 2, pairs, text.rope.sections.size()));
  }
  return text;
}

Model build(const HfConfig& config) {
  const TextConfig text = read_text(config);
  (void)read_media_tokens(config);
  const WindowVisionConfig vision = read_vision_config(config.at("vision_config"));
  if (vision.text_hidden != text.hidden) {
    throw checkpoint_error(
        fmt::format("{}: vision_config.out_hidden_size: expected {} (hidden_size of the text), found {}",
                    config.where(), text.hidden, vision.text_hidden));
  }
  Model model;
  model.family = "qwen2_5_vl";
  add_token_embedding(model, {}, text);
  model.add<WindowLayout>(kTower + ".layout", vision.merge, vision.window, vision.rope);
  model.add<PatchRows>(kTower + ".patch_embed", vision);
  for (int64_t i = 0; i < vision.layers; ++i) {
    const bool whole = std::ranges::find(vision.whole_frame_layers, i) != vision.whole_frame_layers.end();
    model.add<WindowVisionLayer>(fmt::format("{}.blocks.{}", kTower, i), vision, whole);
  }
  model.add<PatchMerger>(kTower + ".merger", vision);
  model.add<MergeMedia>("merge_media");
  add_decoder(model, {}, text);
  model.dialects = {{"in memory", {{"model.*", "model.language_model.*"}, {"visual.*", "model.visual.*"}}}};
  return model;
}

}  // namespace

MediaTokens read_media_tokens(const HfConfig& config) {
  const SizeRange vocabulary{.least = 0, .most = read_text(config).vocab - 1};
  return {static_cast<int32_t>(config.size("image_token_id", 151655, vocabulary)),
          static_cast<int32_t>(config.size("video_token_id", 151656, vocabulary))};
}

WindowVisionConfig read_vision_config(const HfConfig& config) {
  WindowVisionConfig vision;
  vision.hidden = config.size("hidden_size", 3584);
  vision.mlp = config.size("intermediate_size", 3420);
  vision.layers = config.size("depth", 32, {.most = kMaxLayers});
  vision.heads = config.size("num_heads", 16);
  vision.channels = config.integer("in_channels", config.integer("in_chans", 3));
  vision.text_hidden = config.size("out_hidden_size", 3584);
  vision.patch = config.size("patch_size", 14, {.most = 1024});
  vision.temporal_patch = config.size("temporal_patch_size", 2, {.most = 1024});
  vision.merge = config.size("spatial_merge_size", 2, {.most = 1024});
  vision.activation = read_activation(config, "hidden_act", "silu");
  vision.whole_frame_layers = config.has("fullatt_block_indexes") ? config.integers("fullatt_block_indexes")
                                                                  : std::vector<int64_t>{7, 15, 23, 31};
  vision.window = config.size("window_size", 112) / vision.merge / vision.patch;
  check_vision(config, vision);
  vision.rope = vision_rope(config, vision.hidden / vision.heads);
  return vision;
}

}  // namespace qwen2_5_vl

Family qwen2_5_vl_family() {
  return {.name = "qwen2_5_vl",
          .architectures = {"Qwen2_5_VLForConditionalGeneration"},
          .build = qwen2_5_vl::build,
          .processor = qwen2_5_vl::load_processor,
          .rows_of_hf = qwen2_5_vl::rows_of,
          .fresh_files = qwen2_5_vl::fresh_files,
          .typical_row = qwen2_5_vl::typical_row,
          .variables = {"MIN_PIXELS", "MAX_PIXELS", "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS", "VIDEO_TOTAL_PIXELS", "FPS",
                        "FPS_MIN_FRAMES", "FPS_MAX_FRAMES", "NFRAMES"}};
}

}  // namespace lockstep
