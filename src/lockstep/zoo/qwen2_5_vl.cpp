// Qwen2.5-VL: a window-attention tower for pictures of any size -> a merger -> Qwen2 with positions of three axes.
// Source: transformers 5.23 models/qwen2_5_vl.
#include "lockstep/zoo/qwen2_5_vl.h"

#include <nlohmann/json.hpp>

#include "lockstep/zoo/families.h"
#include "lockstep/zoo/mrope.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/window_tower.h"

namespace lockstep {
namespace qwen2_5_vl {
namespace {

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
                             .sliding_window_flag = true,
                             .first_window_layer = 80};

/// Old files hold the text's keys at the root, new ones in text_config.
HfConfig text_part(const HfConfig& config) { return config.has("text_config") ? config.at("text_config") : config; }

TextConfig read_text(const HfConfig& config) {
  TextConfig text = read_mrope_text(text_part(config), kText);
  text.tied = text.tied || config.flag("tie_word_embeddings", false);
  return text;
}

Model build(const HfConfig& config) {
  const TextConfig text = read_text(config);
  (void)read_media_tokens(config);
  Model model;
  model.family = "qwen2_5_vl";
  add_token_embedding(model, {}, text);
  add_window_tower(model, "visual", read_window_vision(config.at("vision_config")), text.hidden, config.where());
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

}  // namespace qwen2_5_vl

Family qwen2_5_vl_family() {
  return {.name = "qwen2_5_vl",
          .architectures = {"Qwen2_5_VLForConditionalGeneration"},
          .build = qwen2_5_vl::build,
          .processor = qwen2_5_vl::load_processor,
          .rows_of_hf = qwen2_5_vl::rows_of,
          .fresh_files = qwen2_5_vl::fresh_files,
          .typical_row = qwen2_5_vl::typical_row,
          .variables = {"MIN_PIXELS", "MAX_PIXELS", "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS", "VIDEO_TOTAL_PIXELS",
                        "IMAGE_MIN_TOKEN_NUM", "IMAGE_MAX_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM", "VIDEO_MAX_TOKEN_NUM",
                        "FPS", "FPS_MIN_FRAMES", "FPS_MAX_FRAMES", "NFRAMES", "QWENVL_BBOX_FORMAT"}};
}

}  // namespace lockstep
