#include "lockstep/zoo/read_text_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What the config classes of transformers 5.23 assume when config.json leaves a key out.
struct Defaults {
  const char* model_type;
  int64_t vocab, hidden, mlp, layers, heads, kv_heads, max_positions;  // kv_heads 0: as many as heads
  bool qkv_bias;
};
constexpr Defaults kDefaults[] = {
    {"llama", 32000, 4096, 11008, 32, 32, 0, 2048, false},
    {"qwen2", 151936, 4096, 22016, 32, 32, 32, 32768, true},
    {"mistral", 32000, 4096, 14336, 32, 32, 8, 131072, false},
};

const Defaults& defaults_of(const HfConfig& config, const std::string& otherwise) {
  const std::string type = config.text("model_type", otherwise);
  const auto* found = std::ranges::find_if(kDefaults, [&](const Defaults& d) { return type == d.model_type; });
  if (found == std::end(kDefaults)) {
    throw checkpoint_error(
        fmt::format("{}: \"model_type\": expected llama, qwen2 or mistral, found \"{}\"", config.where(), type));
  }
  return *found;
}

/// Written as null: means "as many as heads", unlike a key that is left out.
bool is_null(const HfConfig& config, const char* key) {
  return config.json().contains(key) && config.json()[key].is_null();
}

void refuse_sliding_window(const HfConfig& config, const Defaults& defaults, const TextConfig& text) {
  const std::string type = defaults.model_type;
  const auto refuse = [&](const std::string& found) {
    throw checkpoint_error(
        fmt::format("{}: sliding-window attention is active ({}), and Lockstep attends to all tokens", config.where(),
                    found),
        "if your rows are shorter than the window, set use_sliding_window to false (Qwen2) or sliding_window to null");
  };
  if (type == "qwen2" && config.flag("use_sliding_window", false) && config.integer("sliding_window", 4096) > 0 &&
      config.integer("max_window_layers", 28) < text.layers) {
    refuse(fmt::format("use_sliding_window true, max_window_layers {} of {} layers",
                       config.integer("max_window_layers", 28), text.layers));
  }
  if (type == "mistral" && config.has("sliding_window") && config.integer("sliding_window") < text.max_positions) {
    refuse(fmt::format("sliding_window {} below max_position_embeddings {}", config.integer("sliding_window"),
                       text.max_positions));
  }
  const auto kinds = config.texts("layer_types");
  if (std::ranges::find(kinds, "sliding_attention") != kinds.end()) refuse("layer_types names sliding_attention");
}

void check_heads(const HfConfig& config, const TextConfig& text) {
  if (text.heads <= 0 || text.kv_heads <= 0 || text.heads % text.kv_heads != 0) {
    throw checkpoint_error(
        fmt::format("{}: num_attention_heads: expected a multiple of num_key_value_heads {}, found {}", config.where(),
                    text.kv_heads, text.heads));
  }
  if (!config.has("head_dim") && text.hidden % text.heads != 0) {
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

TextConfig read_text_config(const HfConfig& config, const std::string& otherwise) {
  const Defaults& defaults = defaults_of(config, otherwise);
  TextConfig text;
  text.vocab = config.integer("vocab_size", defaults.vocab);
  text.hidden = config.integer("hidden_size", defaults.hidden);
  text.mlp = config.integer("intermediate_size", defaults.mlp);
  text.layers = config.integer("num_hidden_layers", defaults.layers);
  text.heads = config.integer("num_attention_heads", defaults.heads);
  const bool says_null = is_null(config, "num_key_value_heads");
  text.kv_heads =
      config.integer("num_key_value_heads", says_null || defaults.kv_heads == 0 ? text.heads : defaults.kv_heads);
  text.head_dim = config.integer("head_dim", text.heads > 0 ? text.hidden / text.heads : 0);
  text.max_positions = config.integer("max_position_embeddings", defaults.max_positions);
  text.norm_eps = config.number("rms_norm_eps", 1e-6);
  const bool is_llama = std::string(defaults.model_type) == "llama";
  const bool attention_bias = is_llama && config.flag("attention_bias", false);
  text.qkv_bias = defaults.qkv_bias || attention_bias;
  text.output_bias = attention_bias;
  text.mlp_bias = is_llama && config.flag("mlp_bias", false);
  text.tied = config.flag("tie_word_embeddings", false);
  text.activation = config.text("hidden_act", "silu");
  check_heads(config, text);
  refuse_sliding_window(config, defaults, text);
  text.rope = read_rope_config(config, text.head_dim, text.max_positions);
  return text;
}

}  // namespace lockstep
