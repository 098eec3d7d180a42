// The sizes in which `lockstep init` makes fresh LLaVAs, in transformers' naming.
#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/llava.h"

namespace lockstep::llava {

/// Source: transformers CLIPPreTrainedModel._init_weights.
double fresh_spread(const HfConfig& config, const std::string& key) {
  if (!key.starts_with("vision_tower.")) return text_spread(config);
  const HfConfig vision = config.at("vision_config");
  const auto width = static_cast<double>(vision.integer("hidden_size", 768));
  const double deep = 1.0 / std::sqrt(2.0 * static_cast<double>(vision.integer("num_hidden_layers", 12)));
  const auto ends = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return key.ends_with(name); });
  };
  if (ends({"class_embedding", "out_proj.weight"})) return 1.0 / std::sqrt(width);
  if (ends({"q_proj.weight", "k_proj.weight", "v_proj.weight", "fc2.weight"})) return deep / std::sqrt(width);
  if (ends({"fc1.weight"})) return 1.0 / std::sqrt(2.0 * width);
  return vision.number("initializer_range", 0.02);
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  struct Sizes {
    TextSize text;
    VisionSize vision;
  };
  static const std::map<std::string, Sizes> sizes{{"tiny", {{128, 320, 3, 4, 4, 2048}, {64, 192, 2, 2, 32, 8}}},
                                                  {"small", {{384, 1024, 8, 6, 6, 4096}, {256, 768, 6, 8, 112, 14}}},
                                                  {"demo", {{192, 512, 3, 6, 6, 2048}, {128, 384, 2, 4, 48, 16}}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const auto& [text, vision] = found->second;
  const int64_t patches = (vision.image_size / vision.patch) * (vision.image_size / vision.patch);
  const Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                       {"model_type", "llava"},
                       {"image_token_index", "<image>"},
                       {"image_seq_length", patches},
                       {"pad_token_id", nullptr},
                       {"projector_hidden_act", "gelu"},
                       {"multimodal_projector_bias", true},
                       {"vision_feature_layer", -1},
                       {"vision_feature_select_strategy", "default"},
                       {"tie_word_embeddings", false},
                       {"text_config", fresh_text_config("llama", "LlamaForCausalLM", text, vocab)},
                       {"vision_config", fresh_vision_config(vision)},
                       {"torch_dtype", "bfloat16"},
                       {"vocab_size", vocab}};
  return {{"config.json", config},
          {"preprocessor_config.json", fresh_image_processor(vision)},
          {"processor_config.json", fresh_media_processor(vision)},
          {"chat_template.jinja", std::string(vicuna_template())}};
}

}  // namespace lockstep::llava
