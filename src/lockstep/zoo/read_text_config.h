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
  bool qkv_bias = false;
  bool bias_flags = false;           // attention_bias and mlp_bias are read
  bool sliding_window_flag = false;  // use_sliding_window switches windows on, from layer max_window_layers
  bool sliding_window = false;       // a window smaller than max_position_embeddings is always used
};
TextConfig read_text_config(const HfConfig& config, const TextDefaults& defaults);

/// `model_type` llama, qwen2 or mistral (absent: `otherwise`). Throws UserError(kCheckpoint) naming the key for what is
/// not supported: other types, rope types, an active sliding window, partial rotation.
TextConfig read_text_config(const HfConfig& config, const std::string& otherwise);

/// Old: rope_theta and rope_scaling {type | rope_type}. New: rope_parameters. Types default, mrope (default with
/// mrope_section, which become RopeConfig::sections), linear, llama3. Source: transformers 5.23 modeling_rope_utils.py.
RopeConfig read_rope_config(const HfConfig& config, int64_t head_dim, int64_t max_positions,
                            double usual_theta = 10000.0);

}  // namespace lockstep
