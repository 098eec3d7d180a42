// Which matrices of a model are kept as codes of few bits: what people ask for, or what a folder holds.
//
// Example:
//   options.quantised = std::make_shared<const Quantisation>(choose_quantisation(model, naming, {.format = nf4}));
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/plan.h"
#include "lockstep/tensor/quantise.h"

namespace lockstep {

class KeyMap;
class Weights;

struct Quantisation {
  std::map<std::string, QuantFormat> formats;  // by the model's keys: "model.layers.3.self_attn.q_proj.weight"

  std::optional<QuantFormat> format_of(const std::string& key) const {
    const auto at = formats.find(key);
    return at == formats.end() ? std::nullopt : std::make_optional(at->second);
  }
  /// The sources of a unit behind one another as bytes, each as it is kept; what is not codes in the unit's own dtype.
  QuantStore store_of(const Unit& unit, int world) const;
  std::string describe(const Model& model) const;  // "llm 28 of 29 matrices nf4, nested; vision as it is"
};

/// What is quantised while it is loaded.
struct QuantChoice {
  QuantFormat format;
  /// Modules that are kept as they are: names, or parts of names between dots. Empty: towers and projectors, as ms-swift
  /// has it; {"none"}: no module. Heads and tables are never quantised.
  std::vector<std::string> skip;
  bool strict = true;  // a name to skip that no module has is an error
};

/// Throws UserError(kUsage): a name to skip that no module has, nothing left to quantise.
Quantisation choose_quantisation(const Model& model, const Dialect& naming, const QuantChoice& choice);

/// What a folder keeps so. Of a file's tensor that holds several of the model's, which cuts blocks, the values are kept.
Quantisation quantisation_of(const Model& model, const Weights& weights, const KeyMap& keys);

}  // namespace lockstep
