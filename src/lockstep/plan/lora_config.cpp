#include "lockstep/plan/lora_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/text/regex.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxRank = 1 << 16;
constexpr const char* kMergeThere =
    "merge this adapter with peft (merge_and_unload), and take the merged folder as --model";

bool is_suffix(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

/// As Python's re.fullmatch, or re.match up to an end that the pattern states. Every module of a model is asked of, and an expression
/// compiled once.
bool matches(const std::string& pattern, const std::string& text, const std::string& where) {
  constexpr size_t kMost = 4096;
  thread_local std::map<std::pair<std::string, std::string>, Regex> compiled;
  auto at = compiled.find({where, pattern});
  if (at == compiled.end()) {
    if (compiled.size() == kMost) compiled.clear();
    at = compiled.emplace(std::pair(where, pattern), Regex("\\A(?:" + pattern + ")\\z", where)).first;
  }
  return !at->second.find_all(text).empty();
}

ModuleNames names_from(const HfConfig& config, const std::string& key) {
  if (!config.has(key)) return {};
  if (config.json().at(key).is_string()) {
    const std::string text = config.text(key, "");
    if (text == "all-linear") return {.names = {text}, .regex = {}};
    return {.names = {}, .regex = text};
  }
  return {.names = config.texts(key), .regex = {}};
}

Json names_json(const ModuleNames& names) {
  if (!names.regex.empty()) return names.regex;
  if (names.names == std::vector<std::string>{"all-linear"}) return "all-linear";
  return names.empty() ? Json(nullptr) : Json(names.names);
}

template <typename T>
std::vector<std::pair<std::string, T>> pattern_from(const HfConfig& config, const std::string& key, double least,
                                                    double most) {
  std::vector<std::pair<std::string, T>> out;
  const HfConfig table = config.at(key);
  for (const auto& [name, value] : table.json().items()) {
    const double number = value.is_number() ? value.template get<double>() : -1;
    if (number < least || number > most || (std::is_integral_v<T> && number != std::floor(number))) {
      throw checkpoint_error(fmt::format("{}: {}: expected {} from {} to {}, found {}", table.where(), name,
                                         std::is_integral_v<T> ? "a whole number" : "a number", least, most,
                                         value.dump()));
    }
    (void)Regex(name, fmt::format("{}: {}", config.where(), key));
    out.emplace_back(name, static_cast<T>(number));
  }
  return out;
}

template <typename T>
Json pattern_json(const std::vector<std::pair<std::string, T>>& pattern) {
  Json out = Json::object();
  for (const auto& [name, value] : pattern) out[name] = value;
  return out;
}

/// Values under which a key changes nothing.
bool is_idle(const Json& value) {
  return value.is_null() || value == Json(false) || ((value.is_object() || value.is_array()) && value.empty());
}

struct NotBuilt {
  const char *key, *why;
};
/// What changes numbers, or names of tensors, and is not computed here. fan_in_fan_out is of GPT-2's Conv1D alone: where a
/// matrix lies as all do here, peft takes it for false.
constexpr NotBuilt kNotBuilt[] = {
    {"use_qalora", "QA-LoRA pools what A reads"},
    {"alora_invocation_tokens", "activated LoRA begins at a token"},
    {"layer_replication", "layers are read several times"},
    {"target_parameters", "parameters that are no module's weight"},
    {"trainable_token_indices", "single rows of the embedding"},
    {"use_bdlora", "block-diagonal LoRA"},
    {"ensure_weight_tying", "adapters of embedding and head over one storage"},
    {"megatron_config", "Megatron's parallel layers"},
    {"arrow_config", "several adapters routed by token"},
    {"kasa_config", "KaSA scales singular values"},
    {"velora_config", "VeLoRA compresses activations"},
    {"monteclora_config", "MonteCLoRA samples"},
};

void refuse_unbuilt(const HfConfig& config) {
  for (const auto& [key, why] : kNotBuilt) {
    if (!config.json().contains(key) || is_idle(config.json().at(key))) continue;
    throw checkpoint_error(
        fmt::format("{}: {} = {} is not built ({})", config.where(), key, cut_text(config.json().at(key).dump()), why),
        kMergeThere);
  }
}

std::string init_from(const HfConfig& config) {
  if (!config.has("init_lora_weights")) return "true";
  const Json& value = config.json().at("init_lora_weights");
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  const std::string init = config.text("init_lora_weights", "true");
  static const std::vector<std::string> known = {"gaussian", "orthogonal", "eva", "mica", "pissa", "olora"};
  if (std::ranges::find(known, init) != known.end()) return init;
  throw checkpoint_error(
      fmt::format("{}: init_lora_weights: expected true, false, {}, found {}: another base is needed for it",
                  config.where(), join(known, ", "), init),
      "save it with peft's path_initial_model_for_weight_conversion, which makes a plain adapter of it");
}

Json init_json(const std::string& init) {
  return init == "true" || init == "false" ? Json(init == "true") : Json(init);
}

/// The first number in a name that stands behind the first of the patterns which has one; without patterns, behind any part
/// but the first.
std::optional<int64_t> layer_of(const std::string& module, const std::vector<std::string>& patterns) {
  const std::vector<std::string> any{".*\\.[^.]*"};
  for (const auto& pattern : patterns.empty() ? any : patterns) {
    for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1)) {
      const size_t end = module.find('.', dot + 1);
      if (end == std::string::npos) break;
      const std::string number = module.substr(dot + 1, end - dot - 1);
      if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
      if (!matches("(?:^|.*\\.)" + pattern, module.substr(0, dot), "layers_pattern")) continue;
      return number.size() < 10 ? std::stoll(number) : -1;
    }
  }
  return std::nullopt;
}

}  // namespace

bool ModuleNames::match(const std::string& module) const {
  if (!regex.empty()) return matches(regex, module, "the expression for modules");
  return std::ranges::any_of(names, [&](const auto& name) { return is_suffix(module, name); });
}

LoraConfig LoraConfig::from_json(const Json& json, const std::string& where) {
  const HfConfig config(json, where);
  const std::string type = config.text("peft_type", "LORA");
  if (type != "LORA") {
    // Vectors before the text, which no weight can take in. Source: peft's PeftType and its PromptLearningConfig.
    const bool prompt = (type.ends_with("_TUNING") && type != "LN_TUNING") || type.ends_with("_PROMPT") ||
                        type == "CPT" || type == "CARTRIDGE";
    throw checkpoint_error(
        fmt::format("{}: peft_type: expected LORA, found {}", where, type),
        prompt ? "it cannot be merged either: train a LoRA on the same rows (--tuner_type lora)" : kMergeThere);
  }
  refuse_unbuilt(config);
  LoraConfig out;
  out.r = config.size("r", 8, {.least = 1, .most = kMaxRank});
  out.alpha = config.positive("lora_alpha", 8);
  out.dropout = config.number("lora_dropout", 0);
  if (!(out.dropout >= 0 && out.dropout < 1)) {
    throw checkpoint_error(fmt::format("{}: lora_dropout: expected 0 to below 1, found {}", where, out.dropout));
  }
  out.rslora = config.flag("use_rslora", false);
  out.dora = config.flag("use_dora", false);
  out.lora_bias = config.flag("lora_bias", false);
  out.bias = config.text("bias", "none");
  if (out.bias != "none" && out.bias != "all" && out.bias != "lora_only") {
    throw checkpoint_error(fmt::format("{}: bias: expected none, all or lora_only, found {}", where, out.bias));
  }
  out.targets = names_from(config, "target_modules");
  out.exclude = names_from(config, "exclude_modules");
  if (config.has("layers_to_transform")) out.layers = config.integers("layers_to_transform");
  if (config.has("layers_pattern")) {
    const ModuleNames pattern = names_from(config, "layers_pattern");
    out.layers_pattern = pattern.regex.empty() ? pattern.names : std::vector<std::string>{pattern.regex};
  }
  out.rank_pattern = pattern_from<int64_t>(config, "rank_pattern", 1, kMaxRank);
  out.alpha_pattern = pattern_from<double>(config, "alpha_pattern", 0, 1e12);
  if (config.has("modules_to_save")) out.modules_to_save = config.texts("modules_to_save");
  out.init = init_from(config);
  out.task_type = config.text("task_type", "");
  out.base_model = config.text("base_model_name_or_path", "");
  out.revision = config.text("revision", "");
  return out;
}

Json LoraConfig::to_json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json out = {{"alora_invocation_tokens", nullptr},
              {"alpha_pattern", pattern_json(alpha_pattern)},
              {"arrow_config", nullptr},
              {"auto_mapping", nullptr},
              {"base_model_name_or_path", or_null(base_model)},
              {"bias", bias},
              {"corda_config", nullptr},
              {"ensure_weight_tying", false},
              {"eva_config", nullptr},
              {"exclude_modules", names_json(exclude)},
              {"fan_in_fan_out", false},
              {"inference_mode", true},
              {"init_lora_weights", init_json(init)},
              {"kasa_config", nullptr},
              {"layer_replication", nullptr},
              {"layers_pattern", layers_pattern.empty() ? Json(nullptr) : Json(layers_pattern)},
              {"layers_to_transform", layers.empty() ? Json(nullptr) : Json(layers)},
              {"loftq_config", Json::object()},
              {"lora_alpha", alpha == std::floor(alpha) ? Json(static_cast<int64_t>(alpha)) : Json(alpha)},
              {"lora_bias", lora_bias},
              {"lora_dropout", dropout},
              {"lora_ga_config", nullptr},
              {"megatron_config", nullptr},
              {"megatron_core", "megatron.core"},
              {"modules_to_save", modules_to_save.empty() ? Json(nullptr) : Json(modules_to_save)},
              {"monteclora_config", nullptr},
              {"peft_type", "LORA"},
              {"peft_version", "0.21.2"},
              {"qalora_group_size", 16},
              {"r", r},
              {"rank_pattern", pattern_json(rank_pattern)},
              {"revision", or_null(revision)},
              {"target_modules", names_json(targets)},
              {"target_parameters", nullptr},
              {"task_type", or_null(task_type)},
              {"trainable_token_indices", nullptr},
              {"use_bdlora", nullptr},
              {"use_dora", dora},
              {"use_qalora", false},
              {"use_rslora", rslora},
              {"velora_config", nullptr}};
  return out;
}

bool LoraConfig::targets_module(const std::string& module) const {
  if (exclude.match(module)) return false;
  const auto inside_saved = [&](const std::string& name) {
    return matches("(?:^|.*\\.)" + name + "(?:$|\\..*)", module, "modules_to_save");
  };
  if (std::ranges::any_of(modules_to_save, inside_saved)) return false;
  if (!targets.match(module)) return false;
  if (layers.empty() || !targets.regex.empty() || std::ranges::find(targets.names, module) != targets.names.end()) {
    return true;
  }
  return lists_layer_of(module);
}

bool LoraConfig::lists_layer_of(const std::string& module) const {
  const std::optional<int64_t> layer = layer_of(module, layers_pattern);
  return layer && std::ranges::find(layers, *layer) != layers.end();
}

bool LoraConfig::saves(const std::string& tensor) const {
  for (size_t dot = tensor.find('.'); dot != std::string::npos; dot = tensor.find('.', dot + 1)) {
    const std::string module = tensor.substr(0, dot);
    if (std::ranges::any_of(modules_to_save, [&](const auto& name) { return module.ends_with(name); })) return true;
  }
  return false;
}

namespace {

template <typename T>
T of_pattern(const std::vector<std::pair<std::string, T>>& pattern, const std::string& module, T otherwise) {
  for (const auto& [name, value] : pattern) {
    if (matches("(?:.*\\.)?(?:" + name + ")", module, "rank_pattern, alpha_pattern")) return value;
  }
  return otherwise;
}

}  // namespace

int64_t LoraConfig::rank_of(const std::string& module) const { return of_pattern(rank_pattern, module, r); }

double LoraConfig::alpha_of(const std::string& module) const { return of_pattern(alpha_pattern, module, alpha); }

double LoraConfig::scale_of(const std::string& module, int64_t rank) const {
  const auto own = static_cast<double>(rank);
  return alpha_of(module) / (rslora ? std::sqrt(own) : own);
}

}  // namespace lockstep
