// OmniLMM: EVA02-CLIP's enormous tower over one square picture -> a resampler that makes it num_query tokens -> Mistral.
// Source: OpenBMB/OmniLMM omnilmm/model/omnilmm.py, resampler.py; timm 1.0 models/eva.py.
#include "lockstep/zoo/omnilmm.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace omnilmm {
namespace {

constexpr const char* kTowerName = "eva02_enormous_patch14_clip_224.laion2b_plus";
constexpr int64_t kMostEdge = 256;  // patches, as tables of places are made of it

EvaVisionConfig read_vision(const HfConfig& config) {
  if (config.text("mm_vision_tower", kTowerName) != kTowerName)
    throw wrong_key(config, "mm_vision_tower", fmt::format("\"{}\"", kTowerName));
  const HfConfig part = config.at("vision_config");
  EvaVisionConfig vision;
  vision.hidden = part.size("hidden_size", vision.hidden);
  vision.mlp = part.size("intermediate_size", vision.mlp);
  vision.layers = part.size("num_hidden_layers", vision.layers, {.least = 2, .most = kMaxLayers});
  vision.heads = part.size("num_attention_heads", vision.heads);
  vision.patch = part.size("patch_size", vision.patch, {.most = 1024});
  vision.table_size =
      part.size("image_size", vision.table_size, {.least = vision.patch, .most = kMostEdge * vision.patch});
  vision.image_size = config.size("image_size", 448, {.least = vision.patch, .most = kMostEdge * vision.patch});
  if (vision.hidden % vision.heads != 0)
    throw wrong_key(part, "hidden_size", fmt::format("a multiple of num_attention_heads {}", vision.heads));
  if (vision.image_size % vision.patch != 0)
    throw wrong_key(config, "image_size", fmt::format("a multiple of the tower's patch {}", vision.patch));
  return vision;
}

ResamplerConfig read_resampler(const HfConfig& config, const TextConfig& text, const EvaVisionConfig& vision) {
  constexpr int64_t kHeadWidth = 128;
  const int64_t queries = config.size("num_query", 64, {.most = kMostEdge * kMostEdge});
  const auto edge = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(queries))));
  if (edge * edge != queries) throw wrong_key(config, "num_query", "a square");
  const int64_t heads = text.hidden / kHeadWidth;
  if (heads == 0 || text.hidden % heads != 0 || text.hidden % 4 != 0) {
    throw wrong_key(
        config, "hidden_size",
        fmt::format("at least {}, a multiple of 4 and of {}, the heads of the resampler (one for {} numbers)",
                    kHeadWidth, heads, kHeadWidth));
  }
  return {.vision_hidden = vision.hidden,
          .text_hidden = text.hidden,
          .queries = queries,
          .heads = heads,
          .query_edge = edge};
}

void add_tower(Model& model, const Config& config) {
  const std::string tower = "model.vision_tower";
  const EvaVisionConfig& vision = config.vision;
  model.add<EvaLayout>(tower + ".layout", EvaLayoutConfig{.edge = vision.edge(),
                                                          .table_edge = vision.table_edge(),
                                                          .query_edge = config.resampler.query_edge,
                                                          .wave_width = config.resampler.text_hidden / 2,
                                                          .stored_as = config.stored_as});
  model.add<EvaEmbeddings>(tower, vision);
  for (int64_t i = 0; i + 1 < vision.layers; ++i) model.add<EvaLayer>(fmt::format("{}.blocks.{}", tower, i), vision);
  model.add<EvaNorm>(tower + ".norm", vision);
  // The last layer is dropped, and the released files have none; the places of the queries are computed.
  model.carried = {fmt::format("{}.blocks.{}.", tower, vision.layers - 1), kStoredPlaces};
}

Model build(const HfConfig& file) {
  const Config config = read_config(file);
  Model model;
  model.family = "omnilmm";
  model.answers_from_embeddings = true;
  add_token_embedding(model, {}, config.text);
  add_tower(model, config);
  model.add<Resampler>("model.resampler", config.resampler);
  model.add<MergeMedia>("merge_media");
  add_decoder(model, {}, config.text);
  return model;
}

std::vector<Features> rows_of(const HfConfig& file, const HfInputs& inputs) {
  return image_rows_of_hf(inputs, token_of_folder(file.folder(), kPatch, read_config(file).text.vocab));
}

Features typical_row(const HfConfig& file, int64_t tokens) {
  const Config config = read_config(file);
  const int64_t size = config.vision.image_size;
  return typical_picture_row(tokens, {.shape = {1, config.vision.channels, size, size}}, config.resampler.queries);
}

double fresh_spread(const HfConfig& config, const std::string& key) {
  const bool bias = key.ends_with("in_proj_bias") || key.ends_with("q_bias") || key.ends_with("v_bias");
  return bias ? 0.0 : text_spread(config);
}

}  // namespace

Config read_config(const HfConfig& file) {
  if (!file.flag("mm_use_im_start_end", false)) {
    throw wrong_key(file, "mm_use_im_start_end",
                    fmt::format("true (a picture stands between {} and {}: there is no other way)", kStart, kEnd));
  }
  Config config;
  config.text = read_text_config(
      file, TextDefaults{.mlp = 14336, .kv_heads = 8, .max_positions = 131072, .sliding_window = true});
  config.vision = read_vision(file);
  config.resampler = read_resampler(file, config.text, config.vision);
  config.stored_as = file.text("torch_dtype", file.text("dtype", "float32"));
  return config;
}

}  // namespace omnilmm

Family omnilmm_family() {
  return {.name = "omnilmm",
          .architectures = {"OmniLMMForCausalLM"},
          .build = omnilmm::build,
          .processor = omnilmm::load_processor,
          .rows_of_hf = omnilmm::rows_of,
          .fresh_files = omnilmm::fresh_files,
          .typical_row = omnilmm::typical_row,
          .fresh_spread = omnilmm::fresh_spread};
}

}  // namespace lockstep
