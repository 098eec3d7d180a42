// A head of its own that config.json ties to the embedding: the files count, as with transformers 5.
//
// Example:
//   const HfConfig config = with_own_head(HfConfig::load(place));   // "tie_word_embeddings": false, and a notice of why
#pragma once

#include "lockstep/model/hf_config.h"

namespace lockstep {

/// The config that ties nothing, with a notice, where the files hold both tensors and they differ; else the same. Reads values
/// only where the config ties and both are stored. What cannot be built or opened is left to whoever does that next.
/// Source: transformers 5.23 modeling_utils.py tie_weights.
HfConfig with_own_head(const HfConfig& config);

/// A config.json that says in every place where a reader looks that the head is no embedding: transformers 4 asks the text's
/// config, transformers 5 the model's.
Json untied_config(Json config);

}  // namespace lockstep
