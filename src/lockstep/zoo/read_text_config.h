// config.json of the Llama kind -> TextConfig: old and new spellings, and the defaults of each model_type.
#pragma once

#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// What a family assumes where config.json leaves a key out.
struct TextDefaults {
  int64_t vocab = 32000, hidden = 4096, mlp = 11008, layers = 32, heads = 32;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t max_positions = 2048;
  double norm_eps = 1e-6, rope_theta = 10000.0;
  int64_t head_dim = 0;  // 0: hidden / heads
  bool qkv_bias = false;
  bool qk_norm = false;
  bool bias_flags = false;           // attention_bias and mlp_bias are read
  bool attention_bias_flag = false;  // attention_bias alone is read
  bool sliding_window_flag = false;  // use_sliding_window switches windows on, from layer max_window_layers
  bool sliding_window = false;       // every layer has one, unless sliding_window is null
  int64_t window = 4096;             // sliding_window, max_window_layers: of MistralConfig and Qwen2Config
  int64_t first_window_layer = 28;
};
TextConfig read_text_config(const HfConfig& config, const TextDefaults& defaults);

/// Of a model_type that is one of those below, for configs that call themselves otherwise.
const TextDefaults& text_defaults(const std::string& model_type);

/// `model_type` llama, qwen2, qwen3 or mistral (absent: `otherwise`). Throws UserError(kCheckpoint) naming the key for
/// what is not supported: other types, rope types, kinds of layers, partial rotation.
TextConfig read_text_config(const HfConfig& config, const std::string& otherwise);

/// TextConfig::windows: of sliding_window, use_sliding_window, max_window_layers and layer_types, as the model_type reads
/// them. Throws UserError(kCheckpoint) where they contradict each other. Source: transformers 5.23 configuration_qwen2.py,
/// configuration_mistral.py.
std::vector<int64_t> read_windows(const HfConfig& config, const TextDefaults& defaults, int64_t layers);

/// Old: rope_theta and rope_scaling {type | rope_type}. New: rope_parameters. Types default, mrope (default with
/// mrope_section, which become RopeConfig::sections), linear, llama3, yarn, dynamic. Source: transformers 5.23
/// modeling_rope_utils.py.
///
/// dynamic turns as default does up to max_position_embeddings. What comes behind has no one result: transformers and
/// InternLM2 take new frequencies for the longest row that they have seen so far, for all rows of the batch and on top of
/// keys that turned by the old ones. So such rows are refused (RopeConfig::grows).
RopeConfig read_rope_config(const HfConfig& config, int64_t head_dim, int64_t max_positions,
                            double usual_theta = 10000.0);

}  // namespace lockstep
