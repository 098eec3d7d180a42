// A LLaVA of parts: a language model and a CLIP tower, each in a folder of its own, and a projector between them, from a file or
// made anew. Source: haotian-liu/LLaVA llava/train/train.py ModelArguments, llava/model/llava_arch.py initialize_vision_modules.
#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/zoo/llava.h"

namespace lockstep::llava {
namespace {

/// Of a language model that LLaVA's authors join to a tower; nullptr: it is none.
const char* joined_name(const HfConfig& config) {
  auto words = config.texts("architectures");
  if (words.empty()) words.push_back(config.text("model_type", ""));
  const auto is = [&](const char* architecture, const char* type) {
    return words.front() == architecture || words.front() == type;
  };
  if (is("LlamaForCausalLM", "llama")) return "LlavaLlamaForCausalLM";
  return is("MistralForCausalLM", "mistral") ? "LlavaMistralForCausalLM" : nullptr;
}

/// What the person says of the joint, under the keys of config.json.
Json said_keys(const Joint& joint) {
  Json keys = Json::object();
  if (!joint.projector_type.empty()) keys["mm_projector_type"] = joint.projector_type;
  if (!joint.select_feature.empty()) keys["mm_vision_select_feature"] = joint.select_feature;
  if (!joint.aspect_ratio.empty()) keys["image_aspect_ratio"] = joint.aspect_ratio;
  if (joint.select_layer) keys["mm_vision_select_layer"] = *joint.select_layer;
  return keys;
}

/// LLaVA's code finds the conversation of a model in its folder's name. Source: haotian-liu/LLaVA llava/eval/run_llava.py.
bool speaks_llama_2(const HfConfig& config) {
  const ModelPlace& place = config.place();
  std::string name = (place.folder / "").lexically_normal().parent_path().filename().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool named = name.find("llama-2") != std::string::npos || name.find("llama_2") != std::string::npos;
  const auto words = config.texts("architectures");
  return named && std::ranges::find(words, "LlavaLlamaForCausalLM") != words.end() &&
         place.joint.conversation.empty() && !ChatTemplate::stands_in(place.folder);
}
constexpr const char* kLlama2Words =
    "the folder's name says llama-2, whose conversation LLaVA's code takes by that name: rows are written as Vicuna's "
    "here; a "
    "chat_template.jinja in the folder (of Llama 2: [INST] ... [/INST]) counts before that";

}  // namespace

std::optional<HfConfig> join(const HfConfig& config) {
  const ModelPlace& place = config.place();
  if (is_published(config)) {
    const HfConfig said = config.with(said_keys(place.joint));
    return speaks_llama_2(config) ? said.with(Json::object(), kLlama2Words) : said;
  }
  const char* const name = joined_name(config);
  if (name == nullptr || place.vision_tower.empty()) return std::nullopt;
  // What the scripts' own defaults are where they say nothing.
  Json keys = {{"architectures", {name}},
               {"model_type", std::string(name) == "LlavaLlamaForCausalLM" ? "llava_llama" : "llava_mistral"},
               {kTowerName, std::filesystem::absolute(place.vision_tower).lexically_normal().string()},
               {"mm_projector_type", "linear"},
               {"mm_vision_select_layer", -1},
               {"mm_vision_select_feature", "patch"},
               {"mm_use_im_start_end", false},
               {"mm_use_im_patch_token", false},
               {"image_aspect_ratio", "square"}};
  keys.update(said_keys(place.joint));
  const HfConfig joined = config.with(keys);
  return joined.with({{"mm_hidden_size", find_tower(joined).vision.size("hidden_size", 768)}});
}

bool is_joined(const HfConfig& config) {
  return config.differs_from_file() && is_published(config) && !is_published(HfConfig::load(config.place()));
}

std::vector<BorrowedTensors> projector_tensors(const HfConfig& config) {
  const auto& file = config.place().joint.projector;
  if (file.empty()) return {};
  if (!std::filesystem::is_regular_file(file)) {
    throw usage_error(
        fmt::format("--pretrain_mm_mlp_adapter {}: expected a file with a projector's tensors, found none",
                    cut_text(file.string())),
        "LLaVA's first stage writes it: mm_projector.bin in its --output_dir");
  }
  return {{.dir = file,
           .from = {kProjector, "mm_projector.", std::string("base_model.model.") + kProjector},
           .to = kProjector,
           .kept = true}};
}

/// As torch.nn.Linear begins: weights and biases uniform within 1 / sqrt(inputs).
std::vector<MadeTensor> made_projector(const HfConfig& file) {
  if (!is_joined(file) || !file.place().joint.projector.empty()) return {};
  const Config config = read_config(file);
  std::vector<MadeTensor> made;
  const auto layer = [&](const std::string& name, int64_t inputs) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
    const int64_t outputs = config.text.hidden;
    for (auto& [end, shape] :
         std::initializer_list<std::pair<const char*, Shape>>{{".weight", {outputs, inputs}}, {".bias", {outputs}}}) {
      made.push_back({{"model." + name + end, Dtype::kF32, shape}, bound, file.place().joint.seed});
    }
  };
  layer(config.projector_name, config.vision.hidden);
  if (!config.single_layer) layer("mm_projector.2", config.text.hidden);
  return made;
}

}  // namespace lockstep::llava
