// The Plan: decided before any weight is loaded, from the model's declarations and a few options; no tensors, no
// network.
//
// Example:
//   const Plan plan = make_plan(model, {.world = 1000, .zero = {3}, .compute = Dtype::kBF16, .recompute = true});
//   std::cout << plan.print(model);  agree_on(plan.hash());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/adapter.h"
#include "lockstep/model/model.h"
#include "lockstep/plan/freezing.h"
#include "lockstep/plan/zero.h"
#include "lockstep/tensor/quantise.h"

namespace lockstep {

struct AdapterLayout;
struct Quantisation;

/// Part of what AdamW keeps of a block (masters and moments): elements [begin, end) of 0..1 stand on `device`.
struct OptimizerShare {
  int device = 0;
  double begin = 0, end = 1;
};

/// Where blocks stand, among the devices that each rank drives.
struct Placement {
  int num_devices = 1;
  std::vector<int> device_of_block;                           // empty: all on device 0
  std::vector<std::vector<OptimizerShare>> optimizer_shares;  // by block; empty: with the block
  bool offload_params = false;     // weights stay in host memory, and are on the device only while a block runs
  bool offload_optimizer = false;  // masters and moments stay in host memory, and are updated there
};

struct PlanOptions {
  int world = 1;
  ZeroStage zero;
  Dtype compute = Dtype::kBF16;
  std::optional<Dtype> reduce;   // of gradients on their way between ranks; nullopt: as they are computed
  bool decays_all = false;       // weight decay is for biases and norms too
  bool training = true;          // false: nothing is trained, no gradients, no optimizer state
  bool shared_weights = false;   // sharded ones stand in memory that all ranks read, once: they are not gathered
  bool recompute = true;         // of blocks that allow it: ms-swift's gradient_checkpointing
  bool recompute_vision = true;  // vit_gradient_checkpointing
  int kept_blocks = 0;           // of those the last so many on each device keep what they made all the same
  std::set<Component> frozen;
  FreezeChoice freeze;                            // by name, on top of that
  std::shared_ptr<const AdapterLayout> adapters;  // where there are: of the model itself only what they name is trained
  std::vector<std::shared_ptr<const AdapterLayout>> further_adapters;  // rows choose one of all; nothing is trained
  std::shared_ptr<const Quantisation> quantised;  // where there is: matrices that are kept as codes, and frozen
  Placement placement;

  Dtype reduced() const { return reduce.value_or(compute); }  // of the model's own
  std::vector<const AdapterLayout*> all_adapters() const {
    std::vector<const AdapterLayout*> all;
    if (adapters) all.push_back(adapters.get());
    for (const auto& one : further_adapters) all.push_back(one.get());
    return all;
  }
};

/// A parameter's place in the flat buffer of its unit, in elements.
struct PlacedParam {
  ParamSpec spec;
  int64_t offset = 0;
  bool decays = false;
};

/// Elements [begin, end) of what this rank optimises of a unit, on one device; kHost: in host memory.
struct OptimizerSlice {
  int device = 0;
  int64_t begin = 0, end = 0;
};

/// Elements [begin, end) of a unit that AdamW treats alike.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  bool decays = false;
  double rate = 1;  // over the unit's learning rate
  bool operator==(const UpdateRange&) const = default;
};

/// A tensor of the checkpoint among the bytes of a unit.
struct QuantPart {
  QuantFormat format;
  int64_t begin = 0;
};

/// How a unit is kept, gathered and offloaded where its matrices are codes: one part for each source, in order.
struct QuantStore {
  std::vector<QuantPart> parts;
  int64_t bytes = 0, padded = 0, shard = 0;  // as those of a unit
};

/// What is gathered, reduced and optimised as one: the parameters of one block. Matrices (which decay) stand first. A block
/// may have several units: what stays as it is, what of that is kept as codes, what is trained whole beside adapters, and
/// the adapters.
struct Unit {
  std::string name;
  Component component = Component::kLlm;
  Dtype dtype = Dtype::kF32;
  std::vector<PlacedParam> params;
  bool trainable = false;
  int uses = 1;                           // steps that read it: 2 for a tied embedding
  int64_t numel = 0;                      // with holes for alignment, without padding
  std::vector<UpdateRange> updates;       // behind one another, up to `padded`
  int64_t padded = 0;                     // a multiple of world * kAlign
  int64_t shard = 0;                      // padded / world
  int device = 0;                         // where it is computed with and its gradient stands
  std::vector<OptimizerSlice> optimizer;  // behind one another, all of what a rank optimises; empty: not trained
  std::optional<QuantStore> quantised;    // it is kept so, and unpacked while it is used
  int64_t used_numel() const;             // parameters alone

  // What is kept and gathered, whether or not that is what is computed with.
  Dtype kept_dtype() const { return quantised ? Dtype::kU8 : dtype; }
  int64_t kept_padded() const { return quantised ? quantised->padded : padded; }
  int64_t kept_shard() const { return quantised ? quantised->shard : shard; }
};

/// A block's parameter: params[i] of the block is units[unit].params[index].
struct ParamPlace {
  int unit = 0;
  int index = 0;
};

/// One block at its place in the order.
struct Step {
  int block = 0;
  Modalities runs_on = Modality::kText;
  std::vector<int> units;          // in the order in which they are gathered
  std::vector<ParamPlace> params;  // as Block::params(), then those of its adapters
  AdaptedBlock adapted;
  std::vector<std::string> grad_inputs;  // slots whose incoming version needs a gradient
  std::vector<std::string> arrivals;     // slots that may stand on another device (the batch: on the host) before it
  int device = 0;
  bool backward = false;  // anything to do on the way back
  bool recompute = false;
};

/// Bytes of one rank over all its devices and the host. Transient: gathered units at the worst moment, without
/// activations.
struct StateBytes {
  int64_t params = 0, master = 0, optimizer = 0, gradients = 0, transient = 0;
  int64_t total() const { return params + master + optimizer + gradients + transient; }
};

struct Plan {
  static constexpr int64_t kAlign = 64;  // elements: cache lines for every dtype
  static constexpr int kHost = -1;       // a device: the host's memory

  PlanOptions options;
  std::vector<Unit> units;
  std::vector<Step> steps;

  /// Whether a rank keeps a part of the parameters: ZeRO-3 with someone who keeps the rest.
  bool keeps_shard() const { return options.zero.shards_params() && options.world > 1; }
  /// Whether they must be gathered from other ranks before use.
  bool gathers() const { return keeps_shard() && !options.shared_weights; }
  /// Whether all ranks read one copy of them, of which each rank writes its part.
  bool shares() const { return keeps_shard() && options.shared_weights; }
  /// Whether parameters are on the device only while they are used.
  bool leases() const { return gathers() || options.placement.offload_params; }
  bool leases(const Unit& unit) const { return leases() || unit.quantised; }
  /// Elements of a unit whose optimizer state this rank holds.
  int64_t optimised(const Unit& unit) const { return options.zero.shards_optimizer() ? unit.shard : unit.padded; }
  bool drops() const;  // adapters drop part of what they are given
  /// What gradients of a unit are in between ranks.
  Dtype reduced(const Unit& unit) const { return options.reduce.value_or(unit.dtype); }
  int64_t num_params() const;  // tied ones once
  int64_t num_trainable() const;
  int num_recomputed() const;                   // blocks, on the device that has most of them
  StateBytes state_bytes() const;               // the same on every rank
  uint64_t hash() const;                        // what must agree on all ranks
  std::string json() const;                     // plan.json
  std::string print(const Model& model) const;  // for people: a line a step
};

/// Runs of steps on one device, as step indices [begin, end): what a pipeline calls its stages.
struct StageRange {
  int device = 0;
  size_t begin = 0, end = 0;
};
std::vector<StageRange> stages_of(const Plan& plan);

/// Throws UserError(kUsage): nothing left to train, a freeze prefix that matches nothing (nearest key) or only part of
/// a block.
Plan make_plan(const Model& model, const PlanOptions& options);

}  // namespace lockstep
