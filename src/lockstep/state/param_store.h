// Holds what a rank owns of every unit: the compute-dtype shard that is gathered, the float32 master, AdamW's moments,
// and the gradient shard. Decides nothing (the Plan did) and moves nothing (exec/ does).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/plan.h"
#include "lockstep/state/buffer_pool.h"
#include "lockstep/state/shard_layout.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class Communicator;
class KeyMap;
class Weights;

/// The tensors of one unit on one rank. `own` is what this rank optimises: its shard, or all of `padded` when the
/// optimizer is not sharded (ZeRO-0). Undefined tensors: not needed.
struct UnitState {
  Range owned;      // elements of the flat unit that `grad` covers: always this rank's shard
  Range optimised;  // elements that master, m, v cover: owned, or all in ZeRO-0
  Tensor full;      // [padded], compute dtype; in ZeRO-3 hollow between leases
  Tensor shard;     // [shard], compute dtype: what all_gather sends; a slice of full below ZeRO-3
  Tensor master, exp_avg,
      exp_avg_sq;  // f32 over `optimised`; master shares memory with shard or full when compute is f32
  Tensor grad;     // [shard] f32; valid when `touched`
  std::vector<Tensor>
      leaves;            // one a param: views into full with version counters of their own, requires_grad as planned
  int64_t updates = 0;   // AdamW steps of this unit (a unit untouched in a step is not updated, as torch does)
  bool touched = false;  // reduced at least once in this step: agreed on all ranks
};

class ParamStore {
 public:
  using Visitor = std::function<void(const ParamSource&, const Tensor& value)>;

  ParamStore(const Plan& plan, int rank, BufferPool& pool);
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// Reads this rank's slices (all elements below ZeRO-3) of every unit. Throws UserError(kCheckpoint).
  void load(const Weights& weights, const KeyMap& keys);
  /// Fills from a function of (canonical key, first element, out f32): tests and random starts.
  void fill(const std::function<void(const ParamSource&, int64_t begin, const Tensor& out)>& values);

  UnitState& unit(int index) { return units_[static_cast<size_t>(index)]; }
  const UnitState& unit(int index) const { return units_[static_cast<size_t>(index)]; }
  int num_units() const { return static_cast<int>(units_.size()); }
  const Plan& plan() const { return plan_; }
  BufferPool& pool() { return pool_; }
  int rank() const { return rank_; }

  /// After the masters of a unit changed: compute-dtype shard (and full, in ZeRO-0) follow.
  void refresh(int index);
  /// As above, when `master` was written from a checkpoint: collective below ZeRO-3 (gathers full).
  void publish_all(Communicator& comm);

  /// Visits every checkpoint tensor of the model as f32 (masters where there are any) or compute dtype, whole, on rank
  /// `root` only; others take part in the gathers. Order: units, params, sources. Collective.
  void visit_full(Communicator& comm, int root, Dtype dtype, const Visitor& visit);
  /// The same for the gradients (f32) of trained units; a unit untouched in this step gives zeros. Collective.
  void visit_gradients(Communicator& comm, int root, const Visitor& visit);

 private:
  void build_unit(int index);
  void visit_unit(int index, const Tensor& flat, Dtype dtype, const Visitor& visit) const;

  const Plan& plan_;
  int rank_;
  BufferPool& pool_;
  std::vector<UnitState> units_;
};

}  // namespace lockstep
