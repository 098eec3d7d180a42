// LLaVA 1.5's config.json, as transformers and as its authors write it.
// Source: transformers 5.23 models/llava; haotian-liu/LLaVA llava/model/llava_arch.py, multimodal_projector/builder.py,
// multimodal_encoder/clip_encoder.py.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/llava.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep::llava {
namespace {

constexpr const char* kAuthorsNames[] = {"LlavaLlamaForCausalLM", "LlavaMistralForCausalLM", "llava_llama",
                                         "llava_mistral"};

/// Which hidden states of the tower `key` names; negative ones are counted from the last.
std::vector<int64_t> read_states(const HfConfig& config, const std::string& key, int64_t layers) {
  auto states = config.has(key) ? config.integers(key) : std::vector<int64_t>{-2};
  if (states.empty() || states.size() > static_cast<size_t>(layers) + 1) {
    throw checkpoint_error(
        fmt::format("{}: {}: expected 1 to {} states, found {}", config.where(), key, layers + 1, states.size()));
  }
  for (int64_t& state : states) {
    const int64_t named = state;
    if (state < 0) state += layers + 1;
    if (state < 0 || state > layers) {
      throw checkpoint_error(fmt::format("{}: {}: expected {} to {} for {} layers, found {}", config.where(), key,
                                         -layers - 1, layers, layers, named));
    }
  }
  return states;
}

/// Of two words the first drops the class token.
bool read_drops_class_token(const HfConfig& config, const char* key, const char* drops, const char* keeps) {
  const std::string word = config.text(key, drops);
  if (word == drops || word == keeps) return word == drops;
  throw wrong_key(config, key, fmt::format("{} or {}", drops, keeps));
}

Config read_transformers(const HfConfig& file) {
  Config config;
  config.text = read_text_config(file.at("text_config"), "llama");
  config.text.tied = config.text.tied || file.flag("tie_word_embeddings", false);
  config.vision = read_clip_config(file.at("vision_config"));
  config.states = read_states(file, "vision_feature_layer", config.vision.layers);
  config.drops_class_token = read_drops_class_token(file, "vision_feature_select_strategy", "default", "full");
  config.projector_activation = read_activation(file, "projector_hidden_act", "gelu");
  config.projector_bias = file.flag("multimodal_projector_bias", true);
  return config;
}

void read_projector(const HfConfig& file, Config& config) {
  const std::string type = file.text("mm_projector_type", "linear");
  config.single_layer = type == "linear" || type == "mlp1x_gelu";
  if (type == "linear") config.projector_name = "mm_projector";
  if (!config.single_layer && type != "mlp2x_gelu")
    throw wrong_key(file, "mm_projector_type", "mlp2x_gelu, mlp1x_gelu or linear");
  const int64_t hidden = file.size("mm_hidden_size", config.vision.hidden);
  if (hidden == config.vision.hidden) return;
  throw checkpoint_error(
      fmt::format("{}: mm_hidden_size: the projector expects a tower whose hidden_size is {}, found {} in {}",
                  file.where(), hidden, config.vision.hidden, find_tower(file).vision.where()),
      fmt::format(
          "--vision_tower must be the folder of the tower that the model was trained with: {}",
          file.has(kTowerName) ? cut_text(file.json().at(kTowerName).dump()) : "config.json does not say which"));
}

void refuse_other_ways(const HfConfig& file) {
  if (file.flag("mm_use_im_start_end", false))
    throw wrong_key(file, "mm_use_im_start_end", "false (marks around a picture are not built)");
  if (file.has("mm_resampler_type"))
    throw wrong_key(file, "mm_resampler_type", "null (a resampler before the projector is not built)");
  if (file.text("mm_patch_merge_type", "flat") != "flat")
    throw wrong_key(file, "mm_patch_merge_type", "flat (LLaVA-NeXT's pictures in parts are not built)");
  const std::string shape = file.text("image_aspect_ratio", "square");
  if (shape != "pad" && shape != "square")
    throw wrong_key(file, "image_aspect_ratio", "pad or square (LLaVA-NeXT's pictures in parts are not built)");
}

Config read_published(const HfConfig& file) {
  Config config{.published = true};
  const auto architectures = file.texts("architectures");
  config.mistral = std::ranges::find(architectures, "LlavaMistralForCausalLM") != architectures.end() ||
                   file.text("model_type", "") == "llava_mistral";
  config.text = read_text_config(file, text_defaults(config.mistral ? "mistral" : "llama"));
  refuse_other_ways(file);
  config.vision = read_clip_config(find_tower(file).vision);
  config.states = read_states(file, "mm_vision_select_layer", config.vision.layers);
  if (config.states.size() != 1) throw wrong_key(file, "mm_vision_select_layer", "one layer");
  config.drops_class_token = read_drops_class_token(file, "mm_vision_select_feature", "patch", "cls_patch");
  read_projector(file, config);
  return config;
}

}  // namespace

bool is_published(const HfConfig& config) {
  auto words = config.texts("architectures");
  words.push_back(config.text("model_type", ""));
  return config.has(kTowerName) || std::ranges::any_of(words, [](const std::string& word) {
           return std::ranges::find(kAuthorsNames, word) != std::end(kAuthorsNames);
         });
}

ClipConfig read_clip_config(const HfConfig& config) {
  const std::string type = config.text("model_type", "clip_vision_model");
  if (type != "clip_vision_model") throw wrong_key(config, "model_type", "clip_vision_model");
  ClipConfig clip;
  clip.hidden = config.size("hidden_size", 768);
  clip.mlp = config.size("intermediate_size", 3072);
  clip.layers = config.size("num_hidden_layers", 12, {.most = kMaxLayers});
  clip.heads = config.size("num_attention_heads", 12);
  clip.channels = config.size("num_channels", 3, {.least = 3, .most = 3});
  clip.image_size = config.size("image_size", 224);
  clip.patch = config.size("patch_size", 32, {.most = clip.image_size});
  clip.norm_eps = config.positive("layer_norm_eps", 1e-5);
  clip.activation = read_activation(config, "hidden_act", "quick_gelu");
  if (clip.hidden % clip.heads != 0)
    throw wrong_key(config, "hidden_size", fmt::format("a multiple of num_attention_heads {}", clip.heads));
  return clip;
}

Config read_config(const HfConfig& config) {
  return is_published(config) ? read_published(config) : read_transformers(config);
}

}  // namespace lockstep::llava
