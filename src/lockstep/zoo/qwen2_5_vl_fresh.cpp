// Fresh checkpoints of Qwen2.5-VL.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/data/patch_image.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/qwen2_5_vl.h"

namespace lockstep::qwen2_5_vl {
namespace {

/// `window`: the edge of a window in pixels. `max_pixels`: of an image, so that small models stay quick.
struct Sizes {
  TextSize text;
  int64_t hidden, mlp, depth, heads, window, max_pixels;
};

Json vision_config(const Sizes& size) {
  return {{"model_type", "qwen2_5_vl"},
          {"depth", size.depth},
          {"hidden_act", "silu"},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},
          {"num_heads", size.heads},
          {"in_chans", 3},
          {"out_hidden_size", size.text.hidden},
          {"patch_size", 14},
          {"spatial_merge_size", 2},
          {"spatial_patch_size", 14},
          {"window_size", size.window},
          {"fullatt_block_indexes", Json::array({size.depth - 1})},
          {"tokens_per_second", 2},
          {"temporal_patch_size", 2}};
}

}  // namespace

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, Sizes> sizes{
      {"tiny", {{128, 320, 3, 4, 2, 2048}, 64, 160, 2, 2, 56, 28 * 28 * 16}},
      {"small", {{384, 1024, 8, 6, 2, 4096}, 256, 684, 6, 8, 112, 28 * 28 * 64}},
      {"demo", {{192, 512, 4, 6, 2, 2048}, 128, 342, 4, 4, 56, 28 * 28 * 16}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const Sizes& chosen = found->second;
  Json config = fresh_text_config("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", chosen.text, vocab);
  config.erase("head_dim");
  config["rope_theta"] = 1000000.0;
  config["use_sliding_window"] = false;
  config["vision_start_token_id"] = "<|vision_start|>";
  config["vision_end_token_id"] = "<|vision_end|>";
  config["image_token_id"] = "<|image_pad|>";
  config["video_token_id"] = "<|video_pad|>";
  const int64_t pairs = chosen.text.hidden / chosen.text.heads / 2, side = pairs * 3 / 8;
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {pairs - 2 * side, side, side}}};
  config["vision_config"] = vision_config(chosen);
  PatchImageConfig picture;
  picture.max_pixels = chosen.max_pixels;
  Json processor = patch_image_config_json(picture);
  processor["processor_class"] = "Qwen2_5_VLProcessor";
  return {{"config.json", std::move(config)},
          {"preprocessor_config.json", std::move(processor)},
          {"chat_template.jinja", qwen2_vl_template()}};
}

}  // namespace lockstep::qwen2_5_vl
