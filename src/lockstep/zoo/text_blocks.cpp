#include "lockstep/zoo/text_blocks.h"

#include <fmt/format.h>

#include "lockstep/model/layers/decoder_layer.h"
#include "lockstep/model/layers/language_head.h"
#include "lockstep/model/layers/token_embedding.h"

namespace lockstep {

void add_token_embedding(Model& model, const TextPrefixes& at, const TextConfig& config) {
  model.add<TokenEmbedding>(at.body + ".embed_tokens", config);
}

void add_decoder(Model& model, const TextPrefixes& at, const TextConfig& config) {
  model.input_blocks = static_cast<int64_t>(model.blocks.size());
  model.add<RopeTables>(at.body + ".rotary_emb", config);
  for (int64_t i = 0; i < config.layers; ++i) {
    model.add<DecoderLayer>(fmt::format("{}.layers.{}", at.body, i), config, i);
  }
  model.add<LanguageHead>(at.head, config,
                          HeadKeys{.norm = at.body + ".norm.weight",
                                   .head = at.head + ".weight",
                                   .embedding = at.body + ".embed_tokens.weight"});
  model.dims = {.vocab = config.vocab,
                .hidden = config.hidden,
                .layers = config.layers,
                .kv_heads = config.kv_heads,
                .head_dim = config.head_dim,
                .max_positions = config.max_positions,
                .positions_end = config.rope.grows};
}

}  // namespace lockstep
