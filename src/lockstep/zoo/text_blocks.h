// The blocks of a text model under a family's prefix: what comes before media are merged, and what comes after.
#pragma once

#include <string>

#include "lockstep/model/layers/talker.h"
#include "lockstep/model/layers/text_config.h"
#include "lockstep/model/model.h"

namespace lockstep {

/// Where the tensors of a text model stand: "model" and "lm_head", or "language_model.model" and
/// "language_model.lm_head".
struct TextPrefixes {
  std::string body = "model", head = "lm_head";
};

void add_token_embedding(Model& model, const TextPrefixes& at, const TextConfig& config);
/// Rope tables, decoder layers, head; also fills Model::dims.
void add_decoder(Model& model, const TextPrefixes& at, const TextConfig& config);
/// A talker under `prefix` behind the decoder of text, whose size is `embedding`; fills Model::speech.
void add_talker(Model& model, const std::string& prefix, const TextConfig& config, int64_t embedding);

}  // namespace lockstep
