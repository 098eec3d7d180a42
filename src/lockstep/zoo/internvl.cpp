// InternVL: InternViT over tiles of a picture -> a projector that makes four patches one token -> Qwen2, Llama or InternLM2.
// Source: transformers 5.23 models/internvl; OpenGVLab/InternVL modeling_internvl_chat.py.
#include "lockstep/zoo/internvl.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

const std::string kTower = "vision_tower";
const TextPrefixes kText{.body = "language_model.model", .head = "language_model.lm_head"};

void add_tower(Model& model, const InternvlConfig& config) {
  const InternVisionConfig& vision = config.vision;
  model.add<InternVisionEmbeddings>(kTower + ".embeddings", vision);
  for (int64_t i = 0; i < vision.layers; ++i) {
    const std::string name = fmt::format("{}.encoder.layer.{}", kTower, i);
    if (i < config.used_layers) {
      model.add<InternVisionLayer>(name, vision);
      continue;
    }
    const InternVisionLayer idle(name, vision);
    for (const auto& param : idle.params()) {
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
    }
  }
  if (config.mask_token) model.unused.push_back({kTower + ".embeddings.mask_token", {1, 1, vision.hidden}});
}

Model build(const HfConfig& file) {
  const InternvlConfig config = read_internvl_config(file);
  Model model;
  model.family = "internvl";
  model.answers_from_embeddings = config.published;  // transformers' own class takes ids
  add_token_embedding(model, kText, config.text);
  add_tower(model, config);
  model.add<ShuffleProjector>("multi_modal_projector",
                              ShuffleProjectorConfig{.vision_hidden = config.vision.hidden,
                                                     .text_hidden = config.text.hidden,
                                                     .merge = config.merge,
                                                     .activation = config.projector_activation});
  model.add<MergeMedia>("merge_media");
  add_decoder(model, kText, config.text);
  model.dialects = config.dialects;
  return model;
}

std::vector<Features> rows_of(const HfConfig& file, const HfInputs& inputs) {
  return image_rows_of_hf(inputs, internvl_image_token(read_internvl_config(file), file.folder()));
}

/// With as many tiles of a picture as fit, up to a grid of six and the whole.
Features typical_row(const HfConfig& file, int64_t tokens) {
  constexpr int64_t kTiles = 7;
  const InternvlConfig config = read_internvl_config(file);
  const InternVisionConfig& vision = config.vision;
  const int64_t each = config.tokens_of_tile();
  const int64_t tiles = std::clamp<int64_t>((tokens - 1) / each, 1, kTiles);
  return typical_picture_row(tokens, {.shape = {tiles, vision.channels, vision.image_size, vision.image_size}},
                             tiles * each);
}

}  // namespace

Family internvl_family() {
  return {.name = "internvl",
          .architectures = {"InternVLForConditionalGeneration", "InternVLChatModel", "internvl_chat"},
          .build = build,
          .processor = load_internvl_processor,
          .rows_of_hf = rows_of,
          .fresh_files = fresh_internvl_files,
          .typical_row = typical_row,
          .variables = {"INPUT_SIZE", "MAX_NUM", "VIDEO_MAX_NUM", "VIDEO_SEGMENTS"}};
}

}  // namespace lockstep
