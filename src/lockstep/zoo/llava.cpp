// LLaVA 1.5: a CLIP tower -> one or two linear layers -> Llama, Qwen2 or Mistral. Source: transformers 5.23 models/llava;
// haotian-liu/LLaVA llava/model/llava_arch.py.
#include "lockstep/zoo/llava.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace llava {
namespace {

const TextPrefixes kText{.body = "language_model.model", .head = "language_model.lm_head"};

/// The tower's blocks up to the last state that is looked at. Several states travel in slots of their own.
std::vector<std::string> add_tower(Model& model, const ClipConfig& clip, const std::vector<int64_t>& states) {
  const bool several = states.size() > 1;
  const auto slot = [&](int64_t state) {
    const bool wanted = several && std::ranges::find(states, state) != states.end();
    return wanted ? fmt::format("vision_state_{}", state) : std::string();
  };
  model.add<ClipEmbeddings>(kTower, clip, slot(0));
  const int64_t last = *std::ranges::max_element(states);
  for (int64_t i = 0; i < last; ++i) {
    model.add<ClipLayer>(fmt::format("{}.encoder.layers.{}", kTower, i), clip, slot(i + 1));
  }
  for (int64_t i = last; i < clip.layers; ++i) {
    const ClipLayer idle(fmt::format("{}.encoder.layers.{}", kTower, i), clip, "");
    for (const auto& param : idle.params()) {
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
    }
  }
  for (const char* end : {".weight", ".bias"})
    model.unused.push_back({fmt::format("{}.post_layernorm{}", kTower, end), {clip.hidden}});
  std::vector<std::string> slots;
  slots.reserve(states.size());
  for (const int64_t state : states) slots.push_back(several ? slot(state) : "vision");
  return slots;
}

std::vector<Dialect> dialects(const Config& config) {
  const std::string tower = std::string(kTower) + ".*", projector = "multi_modal_projector.";
  std::vector<Dialect> all{{"transformers 5", {{tower, "vision_tower.*"}}},
                           {"in memory",
                            {{"language_model.model.*", "model.language_model.*"},
                             {"language_model.lm_head.*", "lm_head.*"},
                             {tower, "model.vision_tower.*"},
                             {projector + "*", "model.multi_modal_projector.*"}}},
                           {"in memory, transformers 4",
                            {{"language_model.model.*", "model.language_model.*"},
                             {"language_model.lm_head.*", "lm_head.*"},
                             {tower, "model.vision_tower.vision_model.*"},
                             {projector + "*", "model.multi_modal_projector.*"}}}};
  all.push_back({"LLaVA's authors",
                 {{"language_model.model.*", "model.*"},
                  {"language_model.lm_head.*", "lm_head.*"},
                  {tower, std::string(kAuthorsTower) + ".*"},
                  {projector + "linear_1.*", fmt::format("model.{}.*", config.projector_name)},
                  {projector + "linear_2.*", "model.mm_projector.2.*"},
                  {projector + "*", "model.mm_projector.*"}},
                 /*own_code=*/true});
  return all;
}

/// A picture stands where this token is. Outside the vocabulary no prompt holds it, and pictures would be ignored.
int32_t media_token(const HfConfig& file, const Config& config) {
  const char* const key = file.has("image_token_index") ? "image_token_index" : "image_token_id";
  return static_cast<int32_t>(file.size(key, 32000, {.least = 0, .most = config.text.vocab - 1}));
}

Model build(const HfConfig& file) {
  const Config config = read_config(file);
  if (!config.published) (void)media_token(file, config);
  Model model;
  model.family = "llava";
  model.answers_from_embeddings = config.published;  // transformers' own class takes ids
  add_token_embedding(model, kText, config.text);
  auto slots = add_tower(model, config.vision, config.states);
  model.add<Projector>("multi_modal_projector", ProjectorConfig{.slots = std::move(slots),
                                                                .vision_hidden = config.vision.hidden,
                                                                .text_hidden = config.text.hidden,
                                                                .activation = config.projector_activation,
                                                                .bias = config.projector_bias,
                                                                .drop_class_token = config.drops_class_token,
                                                                .single = config.single_layer});
  model.add<MergeMedia>("merge_media");
  add_decoder(model, kText, config.text);
  model.dialects = dialects(config);
  return model;
}

/// Recorded inputs mark pictures by transformers' token. A published folder has none, and says it only for this.
std::vector<Features> rows_of(const HfConfig& file, const HfInputs& inputs) {
  const Config config = read_config(file);
  auto rows = image_rows_of_hf(inputs, media_token(file, config));
  if (!config.published) return rows;
  for (auto& row : rows) {
    for (const auto& picture : row.media) {
      for (const int32_t place : picture.places) row.input_ids[static_cast<size_t>(place)] = kFiller;
    }
  }
  return rows;
}

Features typical_row(const HfConfig& file, int64_t tokens) {
  const Config config = read_config(file);
  const ClipConfig& clip = config.vision;
  return typical_picture_row(tokens, {.shape = {1, clip.channels, clip.image_size, clip.image_size}},
                             config.tokens_of_picture());
}

std::unique_ptr<Processor> load_processor(const ModelPlace& place) {
  const HfConfig file = load_config(place);
  if (is_published(file)) return load_published_processor(place);
  const Config config = read_config(file);
  return load_image_processor(place, {.token = media_token(file, config),
                                      .patch = config.vision.patch,
                                      .extra_tokens = 1,
                                      .drops_class_token = config.drops_class_token});
}

}  // namespace
}  // namespace llava

Family llava_family() {
  return {.name = "llava",
          .architectures = {"LlavaForConditionalGeneration", "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM",
                            "llava_llama", "llava_mistral"},
          .build = llava::build,
          .processor = llava::load_processor,
          .rows_of_hf = llava::rows_of,
          .fresh_files = llava::fresh_files,
          .typical_row = llava::typical_row,
          .fresh_spread = llava::fresh_spread,
          .elsewhere = {.named_by = llava::kTowerName,
                        .sizes_in = llava::kTowerSizes,
                        .join = llava::join,
                        .tensors = llava::borrowed_tensors,
                        .made = llava::made_projector,
                        .files = llava::saved_files,
                        .alone = {"mm_projector.bin", llava::kProjector}}};
}

}  // namespace lockstep
