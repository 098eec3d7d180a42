// Which parameters of a model are trained, by their names: what ms-swift calls freeze_parameters and trainable_parameters.
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

  bool empty() const {
    return ratio <= 0 && prefixes.empty() && regex.empty() && trainable_prefixes.empty() && trainable_regex.empty();
  }
};

/// Source: ms-swift 4.6 swift/trainers/utils.py freeze_parameters, activate_parameters.
class Freezing {
 public:
  /// `components` are frozen to begin with. Throws UserError(kUsage) for a prefix or a pattern that matches nothing, with the
  /// nearest name.
  Freezing(const Model& model, FreezeChoice choice, std::set<Component> components);

  /// Throws UserError(kUsage) naming a matrix that is computed as one of several tensors, of which some are to be frozen.
  bool trains(const Block& block, const ParamSpec& spec) const;

 private:
  bool trains(const Block& block, const std::string& key) const;

  FreezeChoice choice_;
  std::set<Component> components_;
  std::set<std::string> first_;                    // keys that the ratio freezes
  std::shared_ptr<const Regex> frozen_, trained_;  // null: none
};

}  // namespace lockstep
