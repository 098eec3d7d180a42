#include "lockstep/zoo/read_text_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/config_keys.h"

namespace lockstep {
namespace {

/// What the config classes of transformers 5.23 assume when config.json leaves a key out.
const std::pair<const char*, TextDefaults> kDefaults[] = {
    {"llama", {.bias_flags = true}},
    {"qwen2",
     {.vocab = 151936,
      .mlp = 22016,
      .kv_heads = 32,
      .max_positions = 32768,
      .qkv_bias = true,
      .sliding_window_flag = true}},
    {"qwen3",
     {.vocab = 151936,
      .mlp = 22016,
      .kv_heads = 32,
      .max_positions = 32768,
      .head_dim = 128,
      .qk_norm = true,
      .attention_bias_flag = true,
      .sliding_window_flag = true}},
    {"mistral", {.mlp = 14336, .kv_heads = 8, .max_positions = 131072, .sliding_window = true}},
};

/// Written as null: means "as many as heads", unlike a key that is left out.
bool is_null(const HfConfig& config, const char* key) {
  return config.json().contains(key) && config.json()[key].is_null();
}

void check_heads(const HfConfig& config, const TextDefaults& defaults, const TextConfig& text) {
  if (text.heads % text.kv_heads != 0) {
    throw checkpoint_error(
        fmt::format("{}: num_attention_heads: expected a multiple of num_key_value_heads {}, found {}", config.where(),
                    text.kv_heads, text.heads));
  }
  if (!config.has("head_dim") && defaults.head_dim == 0 && text.hidden % text.heads != 0) {
    throw checkpoint_error(fmt::format("{}: hidden_size: expected a multiple of num_attention_heads {}, found {}",
                                       config.where(), text.heads, text.hidden),
                           "or name head_dim");
  }
  if (text.head_dim % 2 != 0) {
    throw checkpoint_error(fmt::format("{}: head size: expected an even number (positions turn pairs), found {}",
                                       config.where(), text.head_dim));
  }
}

}  // namespace

const TextDefaults& text_defaults(const std::string& model_type) {
  const auto* found = std::ranges::find_if(kDefaults, [&](const auto& one) { return model_type == one.first; });
  check(found != std::end(kDefaults), "a model_type with defaults of its own, found " + model_type);
  return found->second;
}

TextConfig read_text_config(const HfConfig& config, const std::string& otherwise) {
  const std::string type = config.text("model_type", otherwise);
  const auto* found = std::ranges::find_if(kDefaults, [&](const auto& one) { return type == one.first; });
  if (found != std::end(kDefaults)) return read_text_config(config, found->second);
  throw checkpoint_error(
      fmt::format("{}: \"model_type\": expected llama, qwen2, qwen3 or mistral, found \"{}\"", config.where(), type));
}

TextConfig read_text_config(const HfConfig& config, const TextDefaults& defaults) {
  if (!config.flag("is_causal", true)) {  // models of embeddings, such as GTE-Qwen2
    throw checkpoint_error(fmt::format("{}: is_causal: expected true, found false", config.where()),
                           "a language model whose tokens see those behind them is not built; computed without it the "
                           "model would be another");
  }
  TextConfig text;
  text.vocab = config.size("vocab_size", defaults.vocab, {.most = kMaxVocab});
  text.hidden = config.size("hidden_size", defaults.hidden);
  text.mlp = config.size("intermediate_size", defaults.mlp);
  text.layers = config.size("num_hidden_layers", defaults.layers, {.most = kMaxLayers});
  text.heads = config.size("num_attention_heads", defaults.heads);
  const bool says_null = is_null(config, "num_key_value_heads");
  text.kv_heads =
      config.size("num_key_value_heads", says_null || defaults.kv_heads == 0 ? text.heads : defaults.kv_heads);
  text.head_dim = config.size("head_dim", defaults.head_dim > 0 ? defaults.head_dim : text.hidden / text.heads);
  text.max_positions = config.size("max_position_embeddings", defaults.max_positions, {.most = kMaxPositions});
  text.norm_eps = config.positive("rms_norm_eps", defaults.norm_eps);
  const bool attention_bias =
      (defaults.bias_flags || defaults.attention_bias_flag) && config.flag("attention_bias", false);
  text.qkv_bias = defaults.qkv_bias || attention_bias;
  text.output_bias = attention_bias;
  text.mlp_bias = defaults.bias_flags && config.flag("mlp_bias", false);
  text.tied = config.flag("tie_word_embeddings", false);
  text.activation = read_activation(config, "hidden_act", "silu");
  check_heads(config, defaults, text);
  text.qk_norm = defaults.qk_norm;
  text.windows = read_windows(config, defaults, text.layers);
  text.rope = read_rope_config(config, text.head_dim, text.max_positions, defaults.rope_theta);
  text.max_positions = std::max(text.max_positions, text.rope.positions);
  return text;
}

}  // namespace lockstep
