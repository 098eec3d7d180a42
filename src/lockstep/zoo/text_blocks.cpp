#include "lockstep/zoo/text_blocks.h"

#include <fmt/format.h>

#include "lockstep/model/layers/decoder_layer.h"
#include "lockstep/model/layers/language_head.h"
#include "lockstep/model/layers/token_embedding.h"

namespace lockstep {

namespace {

ModelDims dims_of(const TextConfig& config) {
  return {.vocab = config.vocab,
          .hidden = config.hidden,
          .layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .max_positions = config.max_positions,
          .positions_end = config.rope.grows};
}

}  // namespace

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
  model.dims = dims_of(config);
}

void add_talker(Model& model, const std::string& prefix, const TextConfig& config, int64_t embedding) {
  const std::string body = prefix + ".model";
  model.add<TalkerInput>(prefix, TalkerSizes{.codes = config.vocab, .embedding = embedding, .hidden = config.hidden});
  model.add<RopeTables>(body + ".rotary_emb", config, talker_place());
  for (int64_t i = 0; i < config.layers; ++i) {
    model.add<DecoderLayer>(fmt::format("{}.layers.{}", body, i), config, i, talker_place());
  }
  model.add<LanguageHead>(
      prefix + ".codec_head", config,
      HeadKeys{.norm = body + ".norm.weight", .head = prefix + ".codec_head.weight", .embedding = {}}, talker_place());
  model.speech = dims_of(config);
}

}  // namespace lockstep
