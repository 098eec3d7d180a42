// Which components are trained, frozen or not built, and how fast each learns.
//
// ms-swift's switches (--freeze_vit …, --vit_lr …) and lists that say the same at once (--train llm,projector). Words:
// the names of component_name, and ms-swift's vit and aligner.
//
// Example:
//   const ComponentChoice choice{.train = {"llm,projector"}};
//   choice.check_against(model);
//   PlanOptions options{.frozen = choice.frozen()};
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

/// "llm,vit" or {"llm", "vit"} -> {kLlm, kVision}. Throws UserError(kUsage) naming `flag`, the words there are and the
/// one found.
std::set<Component> components_from(const std::string& flag, const std::vector<std::string>& words);

struct ComponentChoice {
  std::vector<std::string> train, freeze;
  std::optional<bool> freeze_llm, freeze_vit, freeze_aligner;  // without a list: false, true, true
  std::vector<std::string> freeze_parameters;
  std::string vit_lr, aligner_lr;
  std::vector<std::string> component_lr;

  /// --train: all others; --freeze alone: those; neither: the switches. Throws UserError(kUsage) when two flags
  /// contradict each other.
  std::set<Component> frozen() const;

  /// Of the components that have a rate of their own, over `learning_rate`. Throws UserError(kUsage): a rate that is no
  /// number, given twice, or of a frozen component.
  std::map<Component, double> rate_ratios(double learning_rate) const;

  /// What was named and `unbuilt` leaves out, or the model does not have. Throws UserError(kUsage).
  void check_unbuilt(const std::set<Component>& unbuilt) const;
  void check_against(const Model& model) const;

 private:
  std::map<Component, std::pair<std::string, double>> rates() const;  // the flag that gave it, and the rate
};

/// All that a model may have, in the order in which they are told.
const std::vector<Component>& all_components();

}  // namespace lockstep
