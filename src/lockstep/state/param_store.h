// Holds what a rank owns of every unit, each part on the device that the Plan says: the weights, or codes of them, that
// stay, float32 masters, AdamW's moments, and the gradient shard. Decides nothing (the Plan did) and moves nothing
// (exec/ does).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/plan.h"
#include "lockstep/state/buffer_pool.h"
#include "lockstep/state/quantised_unit.h"
#include "lockstep/state/shard_layout.h"
#include "lockstep/tensor/devices.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class AdapterValues;
class MergedAdapter;
class Communicator;
class KeyMap;
class Pending;
class SharedMemory;
class Weights;

/// What AdamW keeps of elements `range` of a unit (f32), on one device. In float32 the master is the weight itself
/// where it stands on the same device.
struct OptimizerState {
  int device = 0;
  Range range;
  Tensor master, exp_avg, exp_avg_sq;
};

/// The whole weights of a unit on a device, and the parameters in it: views with version counters of their own,
/// requires_grad as planned.
struct UnitView {
  int device = 0;
  Tensor full;  // [padded], compute dtype; hollow between leases where the unit is leased
  std::vector<Tensor> leaves;
};

/// The tensors of one unit on one rank. Undefined tensors: not needed.
struct UnitState {
  Range owned;                  // elements of the flat unit that `grad` covers: always this rank's shard
  Range optimised;              // elements that the optimizer covers: owned, or all in ZeRO-0
  std::vector<UnitView> views;  // on its own device, then on those that read it tied: hollow between leases
  Tensor kept;   // what stays between leases: [shard] when gathered, else [padded], of all ranks where they share
                 // memory; bytes where quantised
  Tensor shard;  // [shard], of kept: what all_gather sends, or this rank's part of shared memory
  Tensor whole;  // as kept, all of it on the unit's device: hollow between leases where it is not kept so
  std::vector<OptimizerState> optimizer;
  Tensor grad;           // [shard] f32; valid when `touched`
  int64_t updates = 0;   // AdamW steps of this unit (a unit untouched in a step is not updated, as torch does)
  bool touched = false;  // reduced at least once in this step: agreed on all ranks

  const UnitView& view_on(int device) const;
};

class ParamStore {
 public:
  using FillValues = std::function<void(const ParamSource&, int64_t begin, const Tensor& out)>;
  static constexpr const char* kWritten = "shared weights, written";  // where ranks meet before they read them
  using Visitor = std::function<void(const ParamSource&, const Tensor& value)>;

  /// `memory`: where a plan of shared weights has them, as yet without bytes; null on rehearsed devices. Once each rank
  /// has filled its part, and they have met, they are whole.
  ParamStore(const Plan& plan, int rank, Devices devices, std::shared_ptr<SharedMemory> memory = nullptr);
  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// Reads this rank's part (all elements below ZeRO-3) of every unit; those of adapters, and what is trained beside
  /// them, of `adapters`. Throws UserError(kCheckpoint).
  void load(const Weights& weights, const KeyMap& keys, const AdapterValues* adapters = nullptr);
  /// The same of a model with an adapter put into it.
  void load(const Weights& weights, const KeyMap& keys, MergedAdapter& merged);
  /// Fills from a function of (canonical key, first element, out f32): tests and random starts.
  void fill(const FillValues& values) { fill(values, nullptr); }

  UnitState& unit(int index) { return units_[static_cast<size_t>(index)]; }
  const UnitState& unit(int index) const { return units_[static_cast<size_t>(index)]; }
  int num_units() const { return static_cast<int>(units_.size()); }
  const Plan& plan() const { return plan_; }
  const Devices& devices() const { return devices_; }
  BufferPool pool(int device) const { return BufferPool(devices_.at(device)); }
  int rank() const { return rank_; }

  /// After the masters of a unit changed: the weights follow.
  void refresh(int index) const;
  void refresh(int index, const OptimizerState& piece) const;  // a piece of its masters
  /// The weights that follow a piece's master; undefined where that is the weight itself.
  Tensor weights_of(int index, const OptimizerState& piece) const;
  /// Begins to give the part of a unit that this rank optimises to the other ranks, where they keep all of it. What is
  /// under way is put behind the others in `pending`, of which at most two stay. Collective.
  void publish(Communicator& comm, int index, std::deque<Pending>& pending);
  /// refresh() and publish() of everything: when masters were written from a checkpoint. Collective.
  void publish_all(Communicator& comm);
  /// This rank's weights -> `full`, on its device: all of them, or where all_gather wants its shard.
  void lend(int index) const;

  /// Visits every checkpoint tensor of the model as f32 (masters where there are any) or compute dtype, whole, on rank
  /// `root` only; others take part in the gathers. Order: units, params, sources. Collective.
  void visit_full(Communicator& comm, int root, Dtype dtype, const Visitor& visit);
  /// The same for trained units alone, each in its own dtype.
  void visit_trained(Communicator& comm, int root, const Visitor& visit);
  /// The same for the gradients (f32) of trained units; a unit untouched in this step gives zeros. Collective.
  void visit_gradients(Communicator& comm, int root, const Visitor& visit);

 private:
  FillValues finite(const Weights& weights, const KeyMap& keys, const FillValues& read,
                    const AdapterValues* adapters) const;
  void fill(const FillValues& values, const ReadQuantised& stored);
  void fill_codes(int index, Range needed, const FillValues& values, const ReadQuantised& stored);
  void build_unit(int index);
  Tensor make_kept(const Unit& planned);
  void build_optimizer(int index);
  UnitView make_view(const Unit& planned, int device, const Tensor& full) const;
  Tensor masters_of(int index) const;
  void visit_whole(Communicator& comm, int root, int index, Dtype dtype, const Visitor& visit);
  void visit_unit(int index, const Tensor& flat, Dtype dtype, const Visitor& visit) const;

  const Plan& plan_;
  int rank_;
  Devices devices_;
  std::shared_ptr<SharedMemory> memory_;
  int64_t placed_ = 0;  // bytes of it that units have
  std::vector<UnitState> units_;
};

}  // namespace lockstep
