// Which modules of a model an adapter changes, and as what its tensors stand in files.
//
// Modules are named as the adapter's files name them: as the original stack holds the model in memory. Everything else
// (units, shards, gradients, checkpoints) follows from the parameters that are declared here.
//
// Example:
//   const AdapterLayout layout = choose_adapters(model, naming_of_adapters(model, keys), config);
//   PlanOptions options{.adapters = std::make_shared<const AdapterLayout>(layout)};
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/adapter.h"
#include "lockstep/model/model.h"
#include "lockstep/plan/lora_config.h"

namespace lockstep {

/// A matrix or table of a model, or a part of a fused one, as others see it.
struct ModuleOfModel {
  std::string name;  // as an adapter names it: "model.layers.3.self_attn.q_proj"
  size_t block = 0, param = 0;
  size_t first_source = 0, sources = 1;  // of the parameter; several where files hold them as one
  int64_t first_row = 0, rows = 0;       // of the parameter
  bool head = false, table = false;
};

/// All of a model, in the order of its blocks; `naming` says how they are called.
std::vector<ModuleOfModel> modules_of(const Model& model, const Dialect& naming);
/// Their names as peft sees them, with those of parts that nothing is computed with.
std::vector<std::string> peft_modules(const Model& model, const Dialect& naming);

struct AdaptedModule {
  ModuleOfModel module;
  int64_t rank = 0;
  double scale = 1;
};

struct AdapterLayout {
  std::string name = {};  // among several: its tensors' keys end in it
  LoraConfig config;
  Dialect naming;                      // of its files
  std::vector<AdaptedModule> modules;  // in the order of blocks
  std::set<std::string> saved;         // canonical keys of the model's parameters that are trained whole
  std::set<Component> whole;           // all of these is in `saved`: they have a file of their own
  bool unties = false;                 // a tied head has weights of its own, since one of both is trained
  double loraplus_ratio = 1;           // LoRA+: what B, and all vectors that are trained, learn faster than A
  double table_rate = 1;               // LoRA+: of adapted tables, over the learning rate

  /// Tensors of a block's adapter, in the order of its unit, and how they are used; none: nothing of it is adapted.
  std::vector<ParamSpec> params_of(const Model& model, size_t block) const;
  /// `first`: where the first of these stands among the tensors of the block's step.
  AdaptedBlock use_of(const Model& model, size_t block, size_t first) const;
  /// Where a tensor of the adapter, or one that is trained whole, stands in adapter_model.safetensors.
  StoredPart in_file(const ParamSource& source) const;
  bool adapts(const std::string& module) const;
  /// What the keys of its tensors end in.
  std::string suffix() const { return name.empty() ? "" : "@" + name; }
};

/// What people and ms-swift say beyond peft's own words.
struct AdapterChoice {
  LoraConfig config;
  /// What "all-linear" and "all-embedding" mean; empty: every component, as for peft.
  std::set<Component> components;
  /// Whether names also mean modules of other components, as for peft and ms-swift; not so for LLaMA-Factory.
  bool adapt_frozen = true;
  std::set<Component> whole;  // trained as they are, beside the adapters: ms-swift's lora_llm
};

/// Throws UserError(kUsage): a word that means nothing (plan/adapter_words.h); nothing to adapt; what is not built.
AdapterLayout choose_adapters(const Model& model, const Dialect& naming, const AdapterChoice& choice);

/// How an adapter names the modules of this model where its folder calls them by `folder`.
Dialect naming_of_adapters(const Model& model, const std::string& folder);

}  // namespace lockstep
