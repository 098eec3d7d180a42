// The Plan: decided before any weight is loaded, from the model's declarations and a few options; no tensors, no
// network.
//
// Example:
//   const Plan plan = make_plan(model, {.world = 1000, .zero = {3}, .compute = Dtype::kBF16, .recompute = true});
//   std::cout << plan.print(model);  agree_on(plan.hash());
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/zero.h"

namespace lockstep {

struct PlanOptions {
  int world = 1;
  ZeroStage zero;
  Dtype compute = Dtype::kBF16;
  bool training = true;          // false: nothing is trained, no gradients, no optimizer state
  bool recompute = true;         // of blocks that allow it: ms-swift's gradient_checkpointing
  bool recompute_vision = true;  // vit_gradient_checkpointing
  std::set<Component> frozen;
  std::vector<std::string> freeze_prefixes;  // freeze_parameters: whole blocks whose keys all begin so
};

/// A parameter's place in the flat buffer of its unit, in elements.
struct PlacedParam {
  ParamSpec spec;
  int64_t offset = 0;
};

/// What is gathered, reduced and optimised as one: the parameters of one block. Matrices (which decay) stand first.
struct Unit {
  std::string name;
  Component component = Component::kLlm;
  std::vector<PlacedParam> params;
  bool trainable = false;
  int uses = 1;                // steps that read it: 2 for a tied embedding
  int64_t numel = 0;           // with holes for alignment, without padding
  int64_t decay_numel = 0;     // elements [0, decay_numel) decay
  int64_t padded = 0;          // a multiple of world * kAlign
  int64_t shard = 0;           // padded / world
  int64_t used_numel() const;  // parameters alone
};

/// A block's parameter: params[i] of the block is units[unit].params[index].
struct ParamPlace {
  int unit = 0;
  int index = 0;
};

/// One block at its place in the order.
struct Step {
  int block = 0;
  Modality modality = Modality::kText;
  std::vector<int> units;                // in the order in which they are gathered
  std::vector<ParamPlace> params;        // as Block::params()
  std::vector<std::string> grad_inputs;  // slots whose incoming version needs a gradient
  bool backward = false;                 // anything to do on the way back
  bool recompute = false;
};

/// Bytes of one rank. Transient: gathered units and staging at the worst moment, without activations.
struct StateBytes {
  int64_t params = 0, master = 0, optimizer = 0, gradients = 0, transient = 0;
  int64_t total() const { return params + master + optimizer + gradients + transient; }
};

struct Plan {
  static constexpr int64_t kAlign = 64;  // elements: cache lines for every dtype

  PlanOptions options;
  std::vector<Unit> units;
  std::vector<Step> steps;

  /// Whether parameters must be gathered before use: ZeRO-3 with someone to gather from.
  bool gathers() const { return options.zero.shards_params() && options.world > 1; }
  int64_t num_params() const;  // tied ones once
  int64_t num_trainable() const;
  StateBytes state_bytes() const;               // the same on every rank
  uint64_t hash() const;                        // what must agree on all ranks
  std::string json() const;                     // plan.json
  std::string print(const Model& model) const;  // for people: a line a step
};

/// Throws UserError(kUsage): nothing left to train, a freeze prefix that matches nothing (nearest key) or only part of
/// a block.
Plan make_plan(const Model& model, const PlanOptions& options);

}  // namespace lockstep
