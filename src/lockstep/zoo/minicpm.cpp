// MiniCPM-V 2.6: SigLIP over slices of any proportions -> a resampler that makes each slice as many tokens -> Qwen2.
// Source: openbmb/MiniCPM-V-2_6 modeling_minicpmv.py, configuration_minicpm.py.
#include "lockstep/zoo/minicpm.h"

#include <array>
#include <cmath>
#include <cstdlib>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/layers/navit_layout.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/zoo/config_keys.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace minicpm {
namespace {

const std::string kTower = "vpm", kResampler = "resampler";

/// What Qwen2Config assumes, of which MiniCPMVConfig is made.
constexpr TextDefaults kText{.vocab = 151936,
                             .mlp = 22016,
                             .kv_heads = 32,
                             .max_positions = 32768,
                             .qkv_bias = true,
                             .sliding_window_flag = true};

/// What SiglipVisionConfig assumes where a key is left out, and MiniCPMVConfig where all of them are.
struct VisionDefaults {
  int64_t hidden, mlp, layers, heads, image_size, patch;
};
constexpr VisionDefaults kSiglip{768, 3072, 12, 12, 224, 16}, kReleased{1152, 4304, 27, 16, 980, 14};

bool drops_last_layer(const HfConfig& config) { return config.flag("drop_vision_last_layer", true); }

}  // namespace

void refuse_other_models(const HfConfig& config) {
  constexpr std::array kOthers = {"insert_layer_id",  "window_kernel_size", "merge_kernel_size",
                                  "downsample_mode",  "scale_emb",          "scale_depth",
                                  "temporal_pos_emb", "batch_3d_resampler", "dim_model_base"};
  for (const char* key : kOthers) {
    if (config.has(key)) throw wrong_key(config, key, "no such key (it belongs to another model of this name)");
  }
}

std::string version_unless_2_6(const HfConfig& config) {
  constexpr double kVersion = 2.6;
  if (!config.has("version")) return "no \"version\", as the first MiniCPM-V and 2.0 have it";
  const Json& said = config.json().at("version");
  const double version = said.is_number()   ? said.get<double>()
                         : said.is_string() ? std::strtod(said.get_ref<const std::string&>().c_str(), nullptr)
                                            : 0.0;
  return std::abs(version - kVersion) < 1e-6 ? "" : fmt::format("\"version\" {}", said.dump());
}

TextConfig read_text(const HfConfig& config) { return read_text_config(config, kText); }

NavitVisionConfig read_vision(const HfConfig& config) {
  const HfConfig part = config.at("vision_config");
  const VisionDefaults& usual = config.has("vision_config") ? kSiglip : kReleased;
  const std::string type = part.text("model_type", "siglip");
  if (type != "siglip" && type != "siglip_vision_model") throw wrong_key(part, "model_type", "siglip");
  refuse_other_models(part);
  NavitVisionConfig vision;
  vision.hidden = part.size("hidden_size", usual.hidden);
  vision.mlp = part.size("intermediate_size", usual.mlp);
  vision.layers = part.size("num_hidden_layers", usual.layers, {.most = kMaxLayers});
  vision.heads = part.size("num_attention_heads", usual.heads);
  vision.channels = part.size("num_channels", 3, {.least = 3, .most = 3});
  vision.image_size = part.size("image_size", usual.image_size, {.most = 65536});
  vision.patch = part.size("patch_size", usual.patch, {.most = 1024});
  vision.norm_eps = part.positive("layer_norm_eps", 1e-6);
  vision.activation = read_activation(part, "hidden_act", "gelu_pytorch_tanh");
  if (vision.hidden % vision.heads != 0)
    throw wrong_key(part, "hidden_size", fmt::format("a multiple of num_attention_heads {}", vision.heads));
  if (vision.patch > vision.image_size)
    throw wrong_key(part, "patch_size", fmt::format("at most image_size {}", vision.image_size));
  return vision;
}

ResamplerConfig read_resampler(const HfConfig& config) {
  constexpr int64_t kHeadWidth = 128;
  const int64_t hidden = read_text(config).hidden;
  const int64_t heads = hidden / kHeadWidth;
  if (heads == 0 || hidden % heads != 0 || hidden % 4 != 0) {
    throw wrong_key(
        config, "hidden_size",
        fmt::format("at least {}, a multiple of 4 and of {}, the heads of the resampler (one for {} numbers)",
                    kHeadWidth, heads, kHeadWidth));
  }
  return {.vision_hidden = read_vision(config).hidden,
          .text_hidden = hidden,
          .queries = config.size("query_num", 64, {.most = 65536}),
          .heads = heads};
}

void add_vision(Model& model, const HfConfig& config) {
  const NavitVisionConfig vision = read_vision(config);
  const ResamplerConfig resampler = read_resampler(config);
  model.add<NavitLayout>(kTower + ".layout", vision.side(), resampler.text_hidden / 2);
  model.add<NavitEmbeddings>(kTower + ".embeddings", vision);
  const int64_t used = vision.layers - (drops_last_layer(config) ? 1 : 0);
  for (int64_t i = 0; i < vision.layers; ++i) {
    const std::string name = fmt::format("{}.encoder.layers.{}", kTower, i);
    if (i < used) {
      model.add<NavitLayer>(name, vision);
      continue;
    }
    const NavitLayer dropped(name, vision);  // released files may hold it all the same
    for (const auto& param : dropped.params())
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
  }
  model.add<NavitNorm>(kTower + ".post_layernorm", vision);
  model.add<Resampler>(kResampler, resampler);
  for (const auto& buffer : {kResampler + ".pos_embed", kTower + ".embeddings.position_ids"})  // that some files hold
    model.carried.push_back(buffer);
}

double fresh_spread(const HfConfig& config, const std::string& key) {
  return key.ends_with("in_proj_bias") ? 0.0 : text_spread(config);
}

}  // namespace minicpm

namespace {

Model build_minicpm_v(const HfConfig& config) {
  minicpm::refuse_other_models(config);
  const TextConfig text = minicpm::read_text(config);
  Model model;
  model.family = "minicpm_v_2_6";
  model.answers_from_embeddings = true;
  add_token_embedding(model, minicpm::kTextAt, text);
  minicpm::add_vision(model, config);
  model.add<MergeMedia>("merge_media");
  add_decoder(model, minicpm::kTextAt, text);
  return model;
}

std::vector<Features> rows_of(const HfConfig&, const HfInputs& inputs) {
  std::vector<Features> rows = rows_of_hf(inputs);
  minicpm::add_recorded_slices(rows, inputs);
  return rows;
}

}  // namespace

Family minicpm_v_2_6_family() {
  return {.name = "minicpm_v_2_6",
          .architectures = {"MiniCPMV", "minicpmv"},
          .build = build_minicpm_v,
          .processor = minicpm::load_vision_processor,
          .rows_of_hf = rows_of,
          .fresh_files = minicpm::fresh_vision_files,
          .typical_row = minicpm::typical_row,
          .variables = {"MAX_SLICE_NUMS", "VIDEO_MAX_SLICE_NUMS", "MAX_NUM_FRAMES", "MAX_NUM", "VIDEO_MAX_NUM"},
          .fresh_spread = minicpm::fresh_spread,
          .unlike = {.of = minicpm::version_unless_2_6, .expected = "\"version\" 2.6 (MiniCPM-V 2.6)"}};
}

}  // namespace lockstep
