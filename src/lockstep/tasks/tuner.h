// How a run trains a model: every weight of what is not frozen, or adapters over it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "lockstep/plan/adapters.h"
#include "lockstep/plan/component_choice.h"

namespace lockstep {

struct TunerOptions {
  std::string type = "full";  // full | lora | lora_llm: adapters on the language model, tower and projector whole
  LoraConfig lora{.dropout = 0.05, .targets = {.names = {"all-linear"}, .regex = {}}};  // ms-swift's defaults
  bool adapt_frozen = true;   // names of modules also mean those of components that are frozen
  double loraplus_ratio = 1;  // lorap_lr_ratio
  double table_rate = 1e-6;   // lorap_emb_lr: of adapted tables, with LoRA+

  /// Flags that a person gave: an adapter that is gone on with must be as they say.
  std::set<std::string> given = {};

  bool adapts() const { return type != "full"; }
  /// Of words about adapters where none is made, what a person should know; "": nothing.
  std::string unheeded() const;
  /// Throws UserError(kUsage): a type or a number that cannot be.
  void check() const;
  std::string fingerprint() const;  // equal where the same is trained
};

/// The adapters that such a run begins with. Of components that are frozen "all-linear" takes nothing. What is written as
/// target_modules names exactly the modules that were chosen. `learning_rate`: of the run, for LoRA+. Throws UserError(kUsage).
AdapterLayout fresh_adapters(const TunerOptions& tuner, const ComponentChoice& components, double learning_rate,
                             const Model& model, const Dialect& naming);

/// The adapters of a folder, as such a run goes on with them: what a folder does not say of them is the run's. Throws
/// UserError(kUsage) where a flag that was given says otherwise than the folder.
AdapterLayout continued_adapters(const TunerOptions& tuner, const ComponentChoice& components, double learning_rate,
                                 const Model& model, AdapterLayout of_folder);

/// A line for each component: how many modules, which, their ranks, and the parameters.
std::string describe_adapters(const Model& model, const AdapterLayout& layout);

}  // namespace lockstep
