// LLaVA 1.5: a CLIP tower -> two linear layers -> Llama, Qwen2 or Mistral. Source: transformers 5.23 models/llava.
#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/clip.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

const std::string kTower = "vision_tower.vision_model";
const TextPrefixes kText{.body = "language_model.model", .head = "language_model.lm_head"};

ClipConfig read_clip_config(const HfConfig& config) {
  const std::string type = config.text("model_type", "clip_vision_model");
  if (type != "clip_vision_model") {
    throw checkpoint_error(
        fmt::format("{}: \"model_type\": expected clip_vision_model, found \"{}\"", config.where(), type));
  }
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
  if (clip.hidden % clip.heads != 0) {
    throw checkpoint_error(fmt::format("{}: hidden_size: expected a multiple of num_attention_heads {}, found {}",
                                       config.where(), clip.heads, clip.hidden));
  }
  return clip;
}

/// Which hidden states of the tower are taken: 0 is what enters the first layer, i what layer i - 1 gives.
std::vector<int64_t> selected_states(const HfConfig& config, int64_t layers) {
  auto states = config.has("vision_feature_layer") ? config.integers("vision_feature_layer") : std::vector<int64_t>{-2};
  if (states.empty() || states.size() > static_cast<size_t>(layers) + 1) {
    throw checkpoint_error(fmt::format("{}: vision_feature_layer: expected 1 to {} states, found {}", config.where(),
                                       layers + 1, states.size()));
  }
  for (int64_t& state : states) {
    const int64_t named = state;
    if (state < 0) state += layers + 1;
    if (state < 0 || state > layers) {
      throw checkpoint_error(fmt::format("{}: vision_feature_layer: expected {} to {} for {} layers, found {}",
                                         config.where(), -layers - 1, layers, layers, named));
    }
  }
  return states;
}

bool drops_class_token(const HfConfig& config) {
  const std::string strategy = config.text("vision_feature_select_strategy", "default");
  if (strategy == "default" || strategy == "full") return strategy == "default";
  throw checkpoint_error(fmt::format("{}: vision_feature_select_strategy: expected default or full, found \"{}\"",
                                     config.where(), strategy));
}

/// The tower's blocks up to the last state that is looked at. Several states travel in slots of their own.
std::vector<std::string> add_tower(Model& model, const ClipConfig& clip, const std::vector<int64_t>& states) {
  const bool several = states.size() > 1;
  const auto slot = [&](int64_t state) {
    const bool wanted = several && std::ranges::find(states, state) != states.end();
    return wanted ? fmt::format("vision_state_{}", state) : std::string();
  };
  model.add<ClipEmbeddings>(kTower, clip, slot(0));
  const int64_t last = *std::ranges::max_element(states);
  for (int64_t i = 0; i < last; ++i) {
    model.add<ClipLayer>(fmt::format("{}.encoder.layers.{}", kTower, i), clip, slot(i + 1));
  }
  for (int64_t i = last; i < clip.layers; ++i) {
    const ClipLayer idle(fmt::format("{}.encoder.layers.{}", kTower, i), clip, "");
    for (const auto& param : idle.params()) {
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
    }
  }
  for (const char* end : {".weight", ".bias"})
    model.unused.push_back({kTower + ".post_layernorm" + end, {clip.hidden}});
  std::vector<std::string> slots;
  slots.reserve(states.size());
  for (const int64_t state : states) slots.push_back(several ? slot(state) : "vision");
  return slots;
}

std::vector<Dialect> dialects() {
  const std::string tower = kTower + ".*";
  return {{"transformers 5", {{tower, "vision_tower.*"}}},
          {"in memory",
           {{"language_model.model.*", "model.language_model.*"},
            {"language_model.lm_head.*", "lm_head.*"},
            {tower, "model.vision_tower.*"},
            {"multi_modal_projector.*", "model.multi_modal_projector.*"}}},
          {"in memory, transformers 4",
           {{"language_model.model.*", "model.language_model.*"},
            {"language_model.lm_head.*", "lm_head.*"},
            {tower, "model.vision_tower.vision_model.*"},
            {"multi_modal_projector.*", "model.multi_modal_projector.*"}}}};
}

/// A picture stands where this token is. Outside the vocabulary no prompt holds it, and pictures would be ignored.
int32_t media_token(const HfConfig& config) {
  const char* const key = config.has("image_token_index") ? "image_token_index" : "image_token_id";
  const int64_t vocab = read_text_config(config.at("text_config"), "llama").vocab;
  return static_cast<int32_t>(config.size(key, 32000, {.least = 0, .most = vocab - 1}));
}

Model build(const HfConfig& config) {
  (void)media_token(config);
  const HfConfig text_config = config.at("text_config");
  TextConfig text = read_text_config(text_config, "llama");
  text.tied = text.tied || config.flag("tie_word_embeddings", false);
  const ClipConfig clip = read_clip_config(config.at("vision_config"));
  Model model;
  model.family = "llava";
  add_token_embedding(model, kText, text);
  auto slots = add_tower(model, clip, selected_states(config, clip.layers));
  model.add<Projector>("multi_modal_projector",
                       ProjectorConfig{.slots = std::move(slots),
                                       .vision_hidden = clip.hidden,
                                       .text_hidden = text.hidden,
                                       .activation = read_activation(config, "projector_hidden_act", "gelu"),
                                       .bias = config.flag("multimodal_projector_bias", true),
                                       .drop_class_token = drops_class_token(config)});
  model.add<MergeMedia>("merge_media");
  add_decoder(model, kText, text);
  model.dialects = dialects();
  return model;
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  return image_rows_of_hf(inputs, media_token(config));
}

Features typical_row(const HfConfig& config, int64_t tokens) {
  const ClipConfig clip = read_clip_config(config.at("vision_config"));
  const int64_t edge = clip.image_size / clip.patch;
  return typical_picture_row(tokens, {.shape = {1, clip.channels, clip.image_size, clip.image_size}},
                             edge * edge + (drops_class_token(config) ? 0 : 1));
}

std::unique_ptr<Processor> load_processor(const std::filesystem::path& dir) {
  const HfConfig config = HfConfig::load(dir);
  return load_image_processor(dir, {.token = media_token(config),
                                    .patch = read_clip_config(config.at("vision_config")).patch,
                                    .extra_tokens = 1,
                                    .drops_class_token = drops_class_token(config)});
}

/// Source: transformers CLIPPreTrainedModel._init_weights.
double fresh_spread(const HfConfig& config, const std::string& key) {
  if (!key.starts_with("vision_tower.")) return text_spread(config);
  const HfConfig vision = config.at("vision_config");
  const auto width = static_cast<double>(vision.integer("hidden_size", 768));
  const double deep = 1.0 / std::sqrt(2.0 * static_cast<double>(vision.integer("num_hidden_layers", 12)));
  const auto ends = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return key.ends_with(name); });
  };
  if (ends({"class_embedding", "out_proj.weight"})) return 1.0 / std::sqrt(width);
  if (ends({"q_proj.weight", "k_proj.weight", "v_proj.weight", "fc2.weight"})) return deep / std::sqrt(width);
  if (ends({"fc1.weight"})) return 1.0 / std::sqrt(2.0 * width);
  return vision.number("initializer_range", 0.02);
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  struct Sizes {
    TextSize text;
    VisionSize vision;
  };
  static const std::map<std::string, Sizes> sizes{{"tiny", {{128, 320, 3, 4, 4, 2048}, {64, 192, 2, 2, 32, 8}}},
                                                  {"small", {{384, 1024, 8, 6, 6, 4096}, {256, 768, 6, 8, 112, 14}}},
                                                  {"demo", {{192, 512, 3, 6, 6, 2048}, {128, 384, 2, 4, 48, 16}}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const auto& [text, vision] = found->second;
  const int64_t patches = (vision.image_size / vision.patch) * (vision.image_size / vision.patch);
  const Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                       {"model_type", "llava"},
                       {"image_token_index", "<image>"},
                       {"image_seq_length", patches},
                       {"pad_token_id", nullptr},
                       {"projector_hidden_act", "gelu"},
                       {"multimodal_projector_bias", true},
                       {"vision_feature_layer", -1},
                       {"vision_feature_select_strategy", "default"},
                       {"tie_word_embeddings", false},
                       {"text_config", fresh_text_config("llama", "LlamaForCausalLM", text, vocab)},
                       {"vision_config", fresh_vision_config(vision)},
                       {"torch_dtype", "bfloat16"},
                       {"vocab_size", vocab}};
  return {{"config.json", config},
          {"preprocessor_config.json", fresh_image_processor(vision)},
          {"processor_config.json", fresh_media_processor(vision)},
          {"chat_template.jinja", std::string(vicuna_template())}};
}

}  // namespace

Family llava_family() {
  return {.name = "llava",
          .architectures = {"LlavaForConditionalGeneration"},
          .build = build,
          .processor = load_processor,
          .rows_of_hf = rows_of,
          .fresh_files = fresh_files,
          .typical_row = typical_row,
          .fresh_spread = fresh_spread};
}

}  // namespace lockstep
