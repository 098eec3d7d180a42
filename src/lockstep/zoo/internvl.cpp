// InternVL as transformers has it: InternViT over tiles of a picture -> a projector that makes four patches one token ->
// Qwen2 or Llama. Source: transformers 5.23 models/internvl.
#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/tile_image.h"
#include "lockstep/model/layers/intern_vision.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

const std::string kTower = "vision_tower";
const TextPrefixes kText{.body = "language_model.model", .head = "language_model.lm_head"};
constexpr std::string_view kImageStart = "<img>", kImageEnd = "</img>", kVideo = "<video>";

/// What may be one number or the same for both edges.
int64_t edge_of(const HfConfig& config, const char* key, int64_t usual) {
  const auto edges = config.has(key) ? config.integers(key) : std::vector<int64_t>{usual};
  const bool square = !edges.empty() && edges.size() <= 2 && edges.front() == edges.back();
  if (square && edges.front() > 0 && edges.front() <= 65536) return edges.front();
  throw checkpoint_error(
      fmt::format("{}: {}: expected one number of pixels from 1, or two that are equal", config.where(), key));
}

void refuse_unless(bool holds, const HfConfig& config, const char* key, const std::string& expected) {
  if (holds) return;
  throw checkpoint_error(fmt::format("{}: {}: expected {}, found {}", config.where(), key, expected,
                                     config.json().contains(key) ? config.json().at(key).dump() : "none"));
}

InternVisionConfig read_vision_config(const HfConfig& config) {
  const std::string type = config.text("model_type", "internvl_vision");
  refuse_unless(type == "internvl_vision", config, "model_type", "internvl_vision");
  InternVisionConfig vision;
  vision.hidden = config.size("hidden_size", 1024);
  vision.mlp = config.size("intermediate_size", 4096);
  vision.layers = config.size("num_hidden_layers", 24, {.most = kMaxLayers});
  vision.heads = config.size("num_attention_heads", 16);
  vision.channels = config.size("num_channels", 3, {.least = 3, .most = 3});
  vision.image_size = edge_of(config, "image_size", 448);
  vision.patch = edge_of(config, "patch_size", 14);
  vision.norm_eps = config.positive("layer_norm_eps", 1e-6);
  const std::string norm = config.text("norm_type", "layer_norm");
  refuse_unless(norm == "layer_norm" || norm == "rms_norm", config, "norm_type", "layer_norm or rms_norm");
  vision.rms_norm = norm == "rms_norm";
  vision.qk_norm = config.flag("use_qk_norm", false);
  vision.qkv_bias = config.flag("attention_bias", false);
  vision.activation = config.text("hidden_act", "gelu");
  refuse_unless(vision.hidden % vision.heads == 0, config, "hidden_size",
                fmt::format("a multiple of num_attention_heads {}", vision.heads));
  refuse_unless(vision.patch <= vision.image_size, config, "patch_size",
                fmt::format("at most image_size {}", vision.image_size));
  refuse_unless(config.flag("use_mean_pooling", true), config, "use_mean_pooling",
                "true (without, a norm that no released model has stands behind the tower)");
  refuse_unless(config.flag("use_absolute_position_embeddings", true), config, "use_absolute_position_embeddings",
                "true");
  return vision;
}

/// Patches of a token's edge.
int64_t read_merge(const HfConfig& config, const InternVisionConfig& vision) {
  const double ratio = config.positive("downsample_ratio", 0.5);
  const auto merge = static_cast<int64_t>(std::llround(1.0 / ratio));
  refuse_unless(
      merge >= 1 && merge <= vision.edge() && 1.0 / static_cast<double>(merge) == ratio && vision.edge() % merge == 0,
      config, "downsample_ratio",
      fmt::format("1 over a whole number that divides the {} patches of an edge", vision.edge()));
  return merge;
}

int64_t tokens_of_tile(const InternVisionConfig& vision, int64_t merge) {
  return (vision.edge() / merge) * (vision.edge() / merge);
}

/// How many layers the state that is taken has passed.
int64_t used_layers(const HfConfig& config, int64_t layers) {
  const int64_t named = config.integer("vision_feature_layer", -1);
  const int64_t state = named < 0 ? layers + 1 + named : named;
  refuse_unless(state >= 0 && state <= layers, config, "vision_feature_layer",
                fmt::format("{} to {}", -layers - 1, layers));
  refuse_unless(config.text("vision_feature_select_strategy", "default") == "default", config,
                "vision_feature_select_strategy", "default");
  return state;
}

void add_tower(Model& model, const HfConfig& config, const InternVisionConfig& vision) {
  model.add<InternVisionEmbeddings>(kTower + ".embeddings", vision);
  const int64_t used = used_layers(config, vision.layers);
  for (int64_t i = 0; i < vision.layers; ++i) {
    const std::string name = fmt::format("{}.encoder.layer.{}", kTower, i);
    if (i < used) {
      model.add<InternVisionLayer>(name, vision);
      continue;
    }
    const InternVisionLayer idle(name, vision);
    for (const auto& param : idle.params()) {
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
    }
  }
  if (config.at("vision_config").flag("use_mask_token", false))
    model.unused.push_back({kTower + ".embeddings.mask_token", {1, 1, vision.hidden}});
}

/// Where pictures and frames stand. Outside the vocabulary no prompt holds it.
int32_t media_token(const HfConfig& config, const TextConfig& text) {
  return static_cast<int32_t>(config.size("image_token_id", 151667, {.least = 0, .most = text.vocab - 1}));
}

TextConfig read_text(const HfConfig& config) {
  TextConfig text = read_text_config(config.at("text_config"), "qwen2");
  text.tied = config.flag("tie_word_embeddings", text.tied);
  return text;
}

Model build(const HfConfig& config) {
  const TextConfig text = read_text(config);
  (void)media_token(config, text);
  const InternVisionConfig vision = read_vision_config(config.at("vision_config"));
  Model model;
  model.family = "internvl";
  add_token_embedding(model, kText, text);
  add_tower(model, config, vision);
  model.add<ShuffleProjector>("multi_modal_projector",
                              ShuffleProjectorConfig{.vision_hidden = vision.hidden,
                                                     .text_hidden = text.hidden,
                                                     .merge = read_merge(config, vision),
                                                     .activation = config.text("projector_hidden_act", "gelu")});
  model.add<MergeMedia>("merge_media");
  add_decoder(model, kText, text);
  model.dialects = {{"in memory",
                     {{"language_model.model.", "model.language_model."},
                      {"language_model.lm_head.", "lm_head."},
                      {"vision_tower.", "model.vision_tower."},
                      {"multi_modal_projector.", "model.multi_modal_projector."}}}};
  return model;
}

std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs) {
  return image_rows_of_hf(inputs, media_token(config, read_text(config)));
}

/// With as many tiles of a picture as fit, up to a grid of six and the whole.
Features typical_row(const HfConfig& config, int64_t tokens) {
  constexpr int64_t kTiles = 7;
  const InternVisionConfig vision = read_vision_config(config.at("vision_config"));
  const int64_t each = tokens_of_tile(vision, read_merge(config, vision));
  const int64_t tiles = std::clamp<int64_t>((tokens - 1) / each, 1, kTiles);
  return typical_picture_row(tokens, {.shape = {tiles, vision.channels, vision.image_size, vision.image_size}},
                             tiles * each);
}

TileImageConfig tiles_of(const std::filesystem::path& dir, const std::vector<std::string>& files, const char* part,
                         const InternVisionConfig& vision) {
  const HfConfig file = picture_config(dir, files, part);
  TileImageConfig config = read_tile_image_config(file.json(), file.where());
  if (config.width == vision.image_size && config.height == vision.image_size) return config;
  throw checkpoint_error(fmt::format("{}: size: expected {} x {} (config.json vision_config.image_size), found {} x {}",
                                     file.where(), vision.image_size, vision.image_size, config.width, config.height));
}

/// <img>, as many tokens as the tiles have, </img>.
void add_picture(std::vector<MediaRun>& runs, int32_t token, int64_t count, size_t block) {
  runs.push_back({.text = std::string(kImageStart)});
  runs.push_back({.token = token, .count = count, .block = block});
  runs.push_back({.text = std::string(kImageEnd)});
}

/// "Frame1: <img>…</img>", a line each.
std::vector<MediaRun> spell_video(const std::vector<MediaBlock>& frames, int32_t token, int64_t each) {
  std::vector<MediaRun> runs;
  for (size_t i = 0; i < frames.size(); ++i) {
    runs.push_back({.text = fmt::format("{}Frame{}: ", i == 0 ? "" : "\n", i + 1)});
    add_picture(runs, token, frames[i].shape[0] * each, i);
  }
  return runs;
}

std::unique_ptr<Processor> load_processor(const std::filesystem::path& dir) {
  const HfConfig config = HfConfig::load(dir);
  const InternVisionConfig vision = read_vision_config(config.at("vision_config"));
  const int64_t each = tokens_of_tile(vision, read_merge(config, vision));
  const int32_t token = media_token(config, read_text(config));
  const auto images = tiles_of(dir, {"preprocessor_config.json"}, "image_processor", vision);
  auto videos =
      tiles_of(dir, {"video_preprocessor_config.json", "preprocessor_config.json"}, "video_processor", vision);
  videos.backend = ImageBackend::kTorchvision;  // whatever images follow: transformers has no other way for videos
  ChatParts parts = load_chat_parts(dir, internvl_template());
  parts.media.kinds[Modality::kImage] = {
      .placeholder = placeholder_of(parts.tokenizer, token, config.where()),
      .prepare =
          [images](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
            TileImageConfig limits = images;
            if (options.max_tiles > 0) limits.max_tiles = options.max_tiles;
            limits.min_tiles = std::min(limits.min_tiles, limits.max_tiles);
            return std::vector{tile_pixels(medium.frames.at(0), limits, where)};
          },
      .spell =
          [token, each](const std::vector<MediaBlock>& blocks, int64_t) {
            std::vector<MediaRun> runs;
            add_picture(runs, token, blocks.at(0).shape[0] * each, 0);
            return runs;
          }};
  parts.media.kinds[Modality::kVideo] = {
      .placeholder = std::string(kVideo),
      .prepare =
          [videos](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
            TileImageConfig limits = videos;
            limits.min_tiles = 1;
            limits.max_tiles = std::max<int64_t>(1, options.video_max_tiles);
            std::vector<MediaBlock> frames;
            for (const Image& frame : medium.frames) {
              frames.push_back(tile_pixels(frame, limits, where));
              frames.back().modality = Modality::kVideo;
            }
            return frames;
          },
      .spell = [token, each](const std::vector<MediaBlock>& frames,
                             int64_t) { return spell_video(frames, token, each); }};
  return std::make_unique<ChatProcessor>(std::move(parts));
}

Json fresh_vision(const VisionSize& size) {
  return {{"model_type", "internvl_vision"},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},
          {"num_hidden_layers", size.layers},
          {"num_attention_heads", size.heads},
          {"num_channels", 3},
          {"image_size", {size.image_size, size.image_size}},
          {"patch_size", {size.patch, size.patch}},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", 1e-6},
          {"norm_type", "layer_norm"},
          {"attention_bias", true},
          {"use_qk_norm", false},
          {"use_mean_pooling", true},
          {"use_absolute_position_embeddings", true},
          {"use_mask_token", false},
          {"initializer_range", 0.02},
          {"layer_scale_init_value", 0.1},
          {"torch_dtype", "bfloat16"}};
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  struct Sizes {
    TextSize text;
    VisionSize vision;
    int64_t max_tiles;
  };
  static const std::map<std::string, Sizes> sizes{{"tiny", {{128, 320, 3, 4, 2, 2048}, {64, 192, 2, 2, 32, 8}, 3}},
                                                  {"small", {{384, 1024, 8, 6, 2, 4096}, {256, 768, 6, 8, 112, 14}, 4}},
                                                  {"demo", {{192, 512, 4, 6, 2, 2048}, {128, 384, 2, 4, 48, 12}, 1}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const auto& [text, vision, max_tiles] = found->second;
  const int64_t edge = vision.image_size / vision.patch / 2;
  const Json config = {{"architectures", {"InternVLForConditionalGeneration"}},
                       {"model_type", "internvl"},
                       {"image_token_id", "<IMG_CONTEXT>"},
                       {"image_seq_length", edge * edge},
                       {"downsample_ratio", 0.5},
                       {"projector_hidden_act", "gelu"},
                       {"vision_feature_layer", -1},
                       {"vision_feature_select_strategy", "default"},
                       {"tie_word_embeddings", false},
                       {"text_config", fresh_text_config("qwen2", "Qwen2ForCausalLM", text, vocab)},
                       {"vision_config", fresh_vision(vision)},
                       {"torch_dtype", "bfloat16"}};
  TileImageConfig tiles;
  tiles.width = tiles.height = vision.image_size;
  tiles.max_tiles = max_tiles;
  tiles.mean = {0.485, 0.456, 0.406};
  tiles.std = {0.229, 0.224, 0.225};
  Json images = tile_image_config_json(tiles);
  images["image_processor_type"] = "GotOcr2ImageProcessorFast";
  images["processor_class"] = "InternVLProcessor";
  const Json tokens = {{"context_image_token", "<IMG_CONTEXT>"},
                       {"start_image_token", kImageStart},
                       {"end_image_token", kImageEnd},
                       {"video_token", kVideo}};
  Json tokenizer = tokens;
  tokenizer["extra_special_tokens"] = tokens;
  return {{"config.json", config},
          {"preprocessor_config.json", std::move(images)},
          {"processor_config.json", {{"image_seq_length", edge * edge}, {"processor_class", "InternVLProcessor"}}},
          {"tokenizer_config.json", std::move(tokenizer)},
          {"chat_template.jinja", std::string(internvl_template())}};
}

}  // namespace

Family internvl_family() {
  return {.name = "internvl",
          .architectures = {"InternVLForConditionalGeneration"},
          .build = build,
          .processor = load_processor,
          .rows_of_hf = rows_of,
          .fresh_files = fresh_files,
          .typical_row = typical_row};
}

}  // namespace lockstep
