// Which components are trained, frozen or not built, and how fast each learns.
//
// ms-swift's switches (--freeze_vit …, --vit_lr …) and lists that say the same at once (--train llm,projector). Words:
// the names of component_name, and ms-swift's vit, aligner and generator.
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
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/freezing.h"

namespace lockstep {

/// "llm,vit" or {"llm", "vit"} -> {kLlm, kVision, kAudio}, whatever of it a model has. Throws UserError(kUsage) naming `flag`, the words there are and the
/// one found.
std::set<Component> components_from(const std::string& flag, const std::vector<std::string>& words);

struct ComponentChoice {
  std::vector<std::string> train, freeze;
  std::optional<bool> freeze_llm, freeze_vit, freeze_aligner;  // without a list: false, true, true
  FreezeChoice by_name;  // --freeze_parameters and --trainable_parameters, and their like
  std::string vit_lr, aligner_lr;
  std::vector<std::string> component_lr;

  /// --train: all others; --freeze alone: those; neither: the switches. A talker unless --train names it. Of all components
  /// that there are, in the model or not. Throws UserError(kUsage) when two flags contradict each other.
  std::set<Component> frozen() const;

  /// Of the trained components that have a rate of their own, over `learning_rate`. Throws UserError(kUsage): a rate that is no
  /// number, given twice, or of a frozen component.
  std::map<Component, double> rate_ratios(double learning_rate) const;

  /// What was named and `unbuilt` leaves out, or the model does not have. Throws UserError(kUsage).
  void check_unbuilt(const std::set<Component>& unbuilt, const std::set<Component>& absent = {}) const;
  void check_against(const Model& model) const;

 private:
  struct Rate {
    std::string flag;  // that gave it
    double rate = 0;
    std::vector<Component> group;  // that the flag speaks of
  };
  std::map<Component, Rate> rates() const;
};

/// All that a model may have, in the order in which they are told.
const std::vector<Component>& all_components();

}  // namespace lockstep
