#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/internvl.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep {
namespace {

/// What may be one number or the same for both edges.
int64_t edge_of(const HfConfig& config, const char* key, int64_t usual) {
  const auto edges = config.has(key) ? config.integers(key) : std::vector<int64_t>{usual};
  const bool square = !edges.empty() && edges.size() <= 2 && edges.front() == edges.back();
  if (square && edges.front() > 0 && edges.front() <= 65536) return edges.front();
  throw checkpoint_error(
      fmt::format("{}: {}: expected one number of pixels from 1, or two that are equal", config.where(), key));
}

void refuse_unless(bool holds, const HfConfig& config, const char* key, const std::string& expected) {
  if (!holds) throw wrong_key(config, key, expected);
}

/// What both spellings call the same; `usual`: what their classes assume.
InternVisionConfig read_tower(const HfConfig& config, const InternVisionConfig& usual) {
  InternVisionConfig vision = usual;
  vision.hidden = config.size("hidden_size", usual.hidden);
  vision.mlp = config.size("intermediate_size", usual.mlp);
  vision.layers = config.size("num_hidden_layers", usual.layers, {.most = kMaxLayers});
  vision.heads = config.size("num_attention_heads", usual.heads);
  vision.channels = config.size("num_channels", 3, {.least = 3, .most = 3});
  vision.image_size = edge_of(config, "image_size", usual.image_size);
  vision.patch = edge_of(config, "patch_size", 14);
  vision.norm_eps = config.positive("layer_norm_eps", 1e-6);
  const std::string norm = config.text("norm_type", usual.rms_norm ? "rms_norm" : "layer_norm");
  refuse_unless(norm == "layer_norm" || norm == "rms_norm", config, "norm_type", "layer_norm or rms_norm");
  vision.rms_norm = norm == "rms_norm";
  vision.activation = read_activation(config, "hidden_act", "gelu");
  refuse_unless(vision.hidden % vision.heads == 0, config, "hidden_size",
                fmt::format("a multiple of num_attention_heads {}", vision.heads));
  refuse_unless(vision.patch <= vision.image_size, config, "patch_size",
                fmt::format("at most image_size {}", vision.image_size));
  return vision;
}

InternVisionConfig read_transformers_tower(const HfConfig& config) {
  const std::string type = config.text("model_type", "internvl_vision");
  refuse_unless(type == "internvl_vision", config, "model_type", "internvl_vision");
  InternVisionConfig vision =
      read_tower(config, {.hidden = 1024, .mlp = 4096, .layers = 24, .heads = 16, .image_size = 448});
  vision.qk_norm = config.flag("use_qk_norm", false);
  vision.qkv_bias = config.flag("attention_bias", false);
  refuse_unless(config.flag("use_mean_pooling", true), config, "use_mean_pooling",
                "true (without, a norm that no released model has stands behind the tower)");
  refuse_unless(config.flag("use_absolute_position_embeddings", true), config, "use_absolute_position_embeddings",
                "true");
  return vision;
}

InternVisionConfig read_published_tower(const HfConfig& config, int64_t force_image_size) {
  const std::string type = config.text("model_type", "intern_vit_6b");
  refuse_unless(type == "intern_vit_6b", config, "model_type", "intern_vit_6b (whatever the tower's size)");
  InternVisionConfig vision = read_tower(
      config, {.hidden = 3200, .mlp = 12800, .layers = 48, .heads = 25, .image_size = 224, .rms_norm = true});
  vision.qk_norm = config.flag("qk_normalization", true);
  vision.qkv_bias = config.flag("qkv_bias", false);
  refuse_unless(force_image_size == 0 || force_image_size == vision.image_size, config, "image_size",
                fmt::format("force_image_size {} (positions for another size are not made)", force_image_size));
  return vision;
}

/// Patches of a token's edge.
int64_t read_merge(const HfConfig& config, const InternVisionConfig& vision) {
  const double ratio = config.positive("downsample_ratio", 0.5);
  const auto merge = static_cast<int64_t>(std::llround(1.0 / ratio));
  refuse_unless(
      merge >= 1 && merge <= vision.edge() && 1.0 / static_cast<double>(merge) == ratio && vision.edge() % merge == 0,
      config, "downsample_ratio",
      fmt::format("1 over a whole number that divides the {} patches of an edge", vision.edge()));
  return merge;
}

/// How many layers the state that `key` names has passed.
int64_t read_used_layers(const HfConfig& config, const char* key, int64_t layers) {
  const int64_t named = config.integer(key, -1);
  const int64_t state = named < 0 ? layers + 1 + named : named;
  refuse_unless(state >= 0 && state <= layers, config, key, fmt::format("{} to {}", -layers - 1, layers));
  return state;
}

/// As transformers holds the model in memory, and adapters name it.
Dialect in_memory() {
  return {"in memory",
          {{"language_model.model.*", "model.language_model.*"},
           {"language_model.lm_head.*", "lm_head.*"},
           {"vision_tower.*", "model.vision_tower.*"},
           {"multi_modal_projector.*", "model.multi_modal_projector.*"}}};
}

std::vector<NameRule> published_tower_names(const InternVisionConfig& vision) {
  const std::string ours = "vision_tower.encoder.layer.*.", theirs = "vision_model.encoder.layers.*.";
  std::vector<NameRule> rules;
  int64_t index = 0;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    rules.push_back({ours + "attention." + part + ".*", theirs + "attn.qkv.*", stacked(index++, 3, vision.hidden)});
  }
  const std::pair<const char*, const char*> names[] = {{"attention.projection_layer.*", "attn.proj.*"},
                                                       {"attention.*", "attn.*"},
                                                       {"layernorm_before.*", "norm1.*"},
                                                       {"layernorm_after.*", "norm2.*"},
                                                       {"lambda_1", "ls1"},
                                                       {"lambda_2", "ls2"},
                                                       {"*", "*"}};
  for (const auto& [from, to] : names) rules.push_back({ours + from, theirs + to});
  const std::string inside = "vision_tower.embeddings.", there = "vision_model.embeddings.";
  rules.push_back({inside + "cls_token", there + "class_embedding"});
  rules.push_back({inside + "position_embeddings", there + "position_embedding"});
  rules.push_back({inside + "patch_embeddings.projection.*", there + "patch_embedding.*"});
  rules.push_back({"vision_tower.*", "vision_model.*"});
  return rules;
}

/// For each key head its queries, itself and its value: rows of `wqkv`. Source: InternLM2 modeling_internlm2.py.
std::vector<NameRule> internlm2_names(const TextConfig& text) {
  const std::string ours = "language_model.model.layers.*.", theirs = "language_model.model.layers.*.";
  const int64_t queries = text.heads / text.kv_heads * text.head_dim, group = queries + 2 * text.head_dim;
  const std::string qkv = theirs + "attention.wqkv.*";
  return {{ours + "self_attn.q_proj.*", qkv, {.group = group, .before = 0, .own = queries}},
          {ours + "self_attn.k_proj.*", qkv, {.group = group, .before = queries, .own = text.head_dim}},
          {ours + "self_attn.v_proj.*", qkv, {.group = group, .before = queries + text.head_dim, .own = text.head_dim}},
          {ours + "self_attn.o_proj.*", theirs + "attention.wo.*"},
          {ours + "mlp.gate_proj.*", theirs + "feed_forward.w1.*"},
          {ours + "mlp.up_proj.*", theirs + "feed_forward.w3.*"},
          {ours + "mlp.down_proj.*", theirs + "feed_forward.w2.*"},
          {ours + "input_layernorm.*", theirs + "attention_norm.*"},
          {ours + "post_attention_layernorm.*", theirs + "ffn_norm.*"},
          {"language_model.model.embed_tokens.*", "language_model.model.tok_embeddings.*"},
          {"language_model.lm_head.*", "language_model.output.*"}};
}

Dialect published(const InternvlConfig& config, bool internlm2) {
  Dialect dialect{"OpenGVLab", published_tower_names(config.vision), /*own_code=*/true};
  const std::pair<const char*, const char*> projector[] = {{"layer_norm", "0"}, {"linear_1", "1"}, {"linear_2", "3"}};
  for (const auto& [from, to] : projector) {
    dialect.rules.push_back({fmt::format("multi_modal_projector.{}.*", from), fmt::format("mlp1.{}.*", to)});
  }
  dialect.rules.push_back({"multi_modal_projector.*", "mlp1.*"});
  if (!internlm2) return dialect;
  const auto text = internlm2_names(config.text);
  dialect.rules.insert(dialect.rules.end(), text.begin(), text.end());
  return dialect;
}

TextConfig read_internlm2(const HfConfig& config) {
  TextConfig text = read_text_config(config, TextDefaults{.vocab = 103168});
  text.qkv_bias = text.output_bias = config.flag("bias", true);
  return text;
}

InternvlConfig read_published(const HfConfig& config) {
  InternvlConfig read{.published = true};
  const HfConfig llm = config.at("llm_config");
  const auto architectures = llm.texts("architectures");
  const std::string kind = architectures.empty() ? llm.text("model_type", "") : architectures[0];
  const bool internlm2 = kind == "InternLM2ForCausalLM" || kind == "internlm2";
  static const std::map<std::string, std::string> kinds{{"Qwen2ForCausalLM", "qwen2"},
                                                        {"Qwen3ForCausalLM", "qwen3"},
                                                        {"LlamaForCausalLM", "llama"},
                                                        {"qwen2", "qwen2"},
                                                        {"qwen3", "qwen3"},
                                                        {"llama", "llama"}};
  const auto known = kinds.find(kind);
  refuse_unless(internlm2 || known != kinds.end(), llm, "architectures",
                "InternLM2ForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM or LlamaForCausalLM");
  read.text = internlm2 ? read_internlm2(llm) : read_text_config(llm, known->second);
  read.text.tied = config.flag("tie_word_embeddings", read.text.tied);
  const int64_t forced = config.has("force_image_size") ? config.size("force_image_size", 448) : 0;
  read.vision = read_published_tower(config.at("vision_config"), forced);
  read.merge = read_merge(config, read.vision);
  read.used_layers = read_used_layers(config, "select_layer", read.vision.layers);
  refuse_unless(config.text("ps_version", "v1") == "v2", config, "ps_version", "v2 (v1 transposes pictures)");
  refuse_unless(!config.flag("pad2square", false), config, "pad2square", "false");
  for (const char* key : {"use_backbone_lora", "use_llm_lora"}) {
    // Their code asks whether it is true: false is no adapter, and true one of rank 1.
    const bool word = config.has(key) && config.json().at(key).is_boolean();
    refuse_unless(word ? !config.flag(key, false) : config.integer(key, 0) == 0, config, key,
                  "0 or false (merge the adapter into the weights first)");
  }
  read.dialects = {published(read, internlm2)};
  return read;
}

InternvlConfig read_transformers(const HfConfig& config) {
  InternvlConfig read{.dialects = {in_memory()}};
  read.text = read_text_config(config.at("text_config"), "qwen2");
  read.text.tied = config.flag("tie_word_embeddings", read.text.tied);
  // Outside the vocabulary no prompt holds it.
  read.image_token =
      static_cast<int32_t>(config.size("image_token_id", 151667, {.least = 0, .most = read.text.vocab - 1}));
  read.vision = read_transformers_tower(config.at("vision_config"));
  read.merge = read_merge(config, read.vision);
  read.used_layers = read_used_layers(config, "vision_feature_layer", read.vision.layers);
  refuse_unless(config.text("vision_feature_select_strategy", "default") == "default", config,
                "vision_feature_select_strategy", "default");
  read.mask_token = config.at("vision_config").flag("use_mask_token", false);
  read.projector_activation = read_activation(config, "projector_hidden_act", "gelu");
  return read;
}

}  // namespace

InternvlConfig read_internvl_config(const HfConfig& config) {
  const bool theirs = config.has("llm_config") || config.text("model_type", "") == "internvl_chat";
  return theirs ? read_published(config) : read_transformers(config);
}

}  // namespace lockstep
