// What an adapter is, in peft's words: adapter_config.json as data.
//
// Example:
//   const LoraConfig config = LoraConfig::from_json(read_json(dir / "adapter_config.json"), "adapter_config.json");
//   config.rank_of("model.layers.3.self_attn.q_proj");   // rank_pattern, else r
// Source: peft 0.21.2 tuners/lora/config.py, tuners_utils.py check_target_module_exists, utils/other.py get_pattern_key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// Names of modules: suffixes behind a dot or whole names; or one regular expression that the whole name matches.
struct ModuleNames {
  std::vector<std::string> names;
  std::string regex;

  bool empty() const { return names.empty() && regex.empty(); }
  bool operator==(const ModuleNames&) const = default;
  bool match(const std::string& module) const;  // throws UserError(kUsage): a regex that runs away
};

struct LoraConfig {
  int64_t r = 8;
  double alpha = 32, dropout = 0;
  bool rslora = false, dora = false;
  bool lora_bias = false;     // B has a bias
  std::string bias = "none";  // of the model's own biases: none | all | lora_only
  ModuleNames targets, exclude;
  std::vector<int64_t> layers;              // layers_to_transform; empty: all
  std::vector<std::string> layers_pattern;  // how a list of layers is called; empty: anyhow
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;
  std::string init = "true";  // init_lora_weights: true | false | gaussian; of an adapter that is read, how it began
  std::string task_type = "CAUSAL_LM", base_model, revision;

  /// Throws UserError(kCheckpoint): an unknown peft_type, numbers out of range, a key that changes what is computed and is
  /// not built, named.
  static LoraConfig from_json(const Json& json, const std::string& where);
  Json to_json() const;  // the keys that peft writes

  /// Whether a module is to be adapted, by its name alone.
  bool targets_module(const std::string& module) const;
  bool lists_layer_of(const std::string& module) const;  // layers_to_transform names the layer that it is in
  /// Whether modules_to_save names a module that this tensor is of.
  bool saves(const std::string& tensor) const;
  bool changes_base() const {
    return init == "pissa" || init == "olora";
  }  // what A and B began with is taken out of it
  int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const { return scale_of(module, rank_of(module)); }
  double scale_of(const std::string& module, int64_t rank) const;  // alpha over rank, or over its root
  double alpha_of(const std::string& module) const;
};

}  // namespace lockstep
