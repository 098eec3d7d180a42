// Which parameters of a model are trained, by their names: what ms-swift calls freeze_parameters and trainable_parameters, and
// LLaMA-Factory finetuning_type freeze.
//
// Example:
//   const Freezing freezing(model, {.prefixes = {"model.layers.0"}, .trainable_regex = "norm"}, {Component::kVision});
//   freezing.trains(block, spec);
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

class Regex;

/// Each on top of those before it. A name is a key of the checkpoint; a pattern is looked for anywhere in it.
struct FreezeChoice {
  double ratio = 0;                   // the first parameters, as many as make no more than this part of all numbers
  std::vector<std::string> prefixes;  // frozen
  std::string regex;
  std::vector<std::string> trainable_prefixes;  // trained, whatever froze them
  std::string trainable_regex;
  int64_t layers = 0;  // of the language model so many of the last are trained; negative: of the first; 0: all
  std::vector<std::string> layer_modules = {};  // these parts of them; empty or "all": whole
  std::vector<std::string> extra_modules = {};  // and, besides them, what has one of these in its name: "embed_tokens"

  bool empty() const {
    return ratio <= 0 && prefixes.empty() && regex.empty() && trainable_prefixes.empty() && trainable_regex.empty() &&
           layers == 0 && layer_modules.empty() && extra_modules.empty();
  }
};

/// Source: ms-swift 4.6 swift/trainers/utils.py freeze_parameters, activate_parameters; LLaMA-Factory 0.9.5 model/adapter.py
/// _setup_freeze_tuning.
class Freezing {
 public:
  /// `components` are frozen to begin with. Throws UserError(kUsage) for a prefix or a pattern that matches nothing, with the
  /// nearest name.
  Freezing(const Model& model, FreezeChoice choice, std::set<Component> components);

  /// Throws UserError(kUsage) naming a matrix that is computed as one of several tensors, of which some are to be frozen.
  bool trains(const Block& block, const ParamSpec& spec) const;

 private:
  bool trains(const Block& block, const std::string& key) const;
  void find_layers(const Model& model);
  bool is_of_layers(const Block& block, const std::string& key) const;

  FreezeChoice choice_;
  std::set<Component> components_;
  std::set<std::string> first_;                    // keys that the ratio freezes
  std::shared_ptr<const Regex> frozen_, trained_;  // null: none
  int64_t first_layer_ = 0, end_layer_ = 0;        // that are trained, where `layers` chooses
};

}  // namespace lockstep
