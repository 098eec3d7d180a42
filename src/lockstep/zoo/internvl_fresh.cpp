// What `lockstep init --family internvl` writes, beside weights and tokenizer.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/data/tile_image.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/internvl.h"

namespace lockstep {
namespace {

Json fresh_vision(const VisionSize& size) {
  return {{"model_type", "internvl_vision"},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},
          {"num_hidden_layers", size.layers},
          {"num_attention_heads", size.heads},
          {"num_channels", 3},
          {"image_size", {size.image_size, size.image_size}},
          {"patch_size", {size.patch, size.patch}},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", 1e-6},
          {"norm_type", "layer_norm"},
          {"attention_bias", true},
          {"use_qk_norm", false},
          {"use_mean_pooling", true},
          {"use_absolute_position_embeddings", true},
          {"use_mask_token", false},
          {"initializer_range", 0.02},
          {"layer_scale_init_value", 0.1},
          {"torch_dtype", "bfloat16"}};
}

}  // namespace

std::vector<std::pair<std::string, Json>> fresh_internvl_files(const std::string& size, int64_t vocab) {
  struct Sizes {
    TextSize text;
    VisionSize vision;
    int64_t max_tiles;
  };
  static const std::map<std::string, Sizes> sizes{{"tiny", {{128, 320, 3, 4, 2, 2048}, {64, 192, 2, 2, 32, 8}, 3}},
                                                  {"small", {{384, 1024, 8, 6, 2, 4096}, {256, 768, 6, 8, 112, 14}, 4}},
                                                  {"demo", {{192, 512, 4, 6, 2, 2048}, {128, 384, 2, 4, 48, 12}, 1}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const auto& [text, vision, max_tiles] = found->second;
  const int64_t edge = vision.image_size / vision.patch / 2;
  const Json config = {{"architectures", {"InternVLForConditionalGeneration"}},
                       {"model_type", "internvl"},
                       {"image_token_id", kInternvlContext},
                       {"image_seq_length", edge * edge},
                       {"downsample_ratio", 0.5},
                       {"projector_hidden_act", "gelu"},
                       {"vision_feature_layer", -1},
                       {"vision_feature_select_strategy", "default"},
                       {"tie_word_embeddings", false},
                       {"text_config", fresh_text_config("qwen2", "Qwen2ForCausalLM", text, vocab)},
                       {"vision_config", fresh_vision(vision)},
                       {"torch_dtype", "bfloat16"}};
  TileImageConfig tiles;
  tiles.width = tiles.height = vision.image_size;
  tiles.max_tiles = max_tiles;
  tiles.mean = {0.485, 0.456, 0.406};
  tiles.std = {0.229, 0.224, 0.225};
  Json images = tile_image_config_json(tiles);
  images["image_processor_type"] = "GotOcr2ImageProcessorFast";
  images["processor_class"] = "InternVLProcessor";
  const Json tokens = {{"context_image_token", kInternvlContext},
                       {"start_image_token", kInternvlStart},
                       {"end_image_token", kInternvlEnd},
                       {"video_token", kInternvlVideo}};
  Json tokenizer = tokens;
  tokenizer["extra_special_tokens"] = tokens;
  return {{"config.json", config},
          {"preprocessor_config.json", std::move(images)},
          {"processor_config.json", {{"image_seq_length", edge * edge}, {"processor_class", "InternVLProcessor"}}},
          {"tokenizer_config.json", std::move(tokenizer)},
          {"chat_template.jinja", internvl_template()}};
}

}  // namespace lockstep
