// config.json of the Llama kind -> TextConfig: old and new spellings, and the defaults of each model_type.
#pragma once

#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// `model_type` llama, qwen2 or mistral (absent: `otherwise`). Throws UserError(kCheckpoint) naming the key for what is
/// not supported: other types, rope types, an active sliding window, partial rotation.
TextConfig read_text_config(const HfConfig& config, const std::string& otherwise);

/// Old: rope_theta and rope_scaling {type | rope_type}. New: rope_parameters. Types default, linear, llama3.
/// Source: transformers 5.23 modeling_rope_utils.py.
RopeConfig read_rope_config(const HfConfig& config, int64_t head_dim, int64_t max_positions);

}  // namespace lockstep
