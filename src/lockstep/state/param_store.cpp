#include "lockstep/state/param_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor slice(const Tensor& flat, Range range) { return flat.narrow(0, range.begin, range.size()); }

/// Calls `visit(source, its range in the unit)` for every checkpoint tensor of a unit.
template <typename Visit>
void for_each_source(const Unit& unit, Visit&& visit) {
  for (const auto& placed : unit.params) {
    int64_t begin = placed.offset;
    for (const auto& source : placed.spec.sources) {
      const int64_t numel = numel_of(source.shape);
      visit(source, Range{begin, begin + numel});
      begin += numel;
    }
  }
}

}  // namespace

ParamStore::ParamStore(const Plan& plan, int rank, BufferPool& pool)
    : plan_(plan), rank_(rank), pool_(pool), units_(plan.units.size()) {
  for (int i = 0; i < num_units(); ++i) build_unit(i);
}

ParamStore::~ParamStore() = default;

void ParamStore::build_unit(int index) {
  const Unit& planned = plan_.units[static_cast<size_t>(index)];
  UnitState& state = unit(index);
  const Dtype compute = plan_.options.compute;
  state.owned = {rank_ * planned.shard, (rank_ + 1) * planned.shard};
  state.optimised = plan_.options.zero.shards_optimizer() ? state.owned : Range{0, planned.padded};
  if (plan_.gathers()) {
    state.full = pool_.hollow(planned.padded, compute);
    state.shard = pool_.take(planned.shard, compute);
  } else {
    state.full = pool_.take(planned.padded, compute);
    state.shard = slice(state.full, state.owned);
  }
  if (planned.trainable) {
    const Tensor weights = plan_.gathers() ? state.shard : slice(state.full, state.optimised);
    state.master = compute == Dtype::kF32 ? weights : pool_.take(state.optimised.size(), Dtype::kF32);
    state.exp_avg = pool_.take(state.optimised.size(), Dtype::kF32).zero_();
    state.exp_avg_sq = pool_.take(state.optimised.size(), Dtype::kF32).zero_();
    state.grad = pool_.take(planned.shard, Dtype::kF32).zero_();
  }
  for (const auto& placed : planned.params) {
    // variable_data: a version counter of its own, so that refilling `full` never trips the checks of saved tensors.
    Tensor leaf = state.full.narrow(0, placed.offset, placed.spec.numel()).view(placed.spec.shape).variable_data();
    leaf.set_requires_grad(planned.trainable);
    state.leaves.push_back(std::move(leaf));
  }
}

void ParamStore::load(const Weights& weights, const KeyMap& keys) {
  fill([&](const ParamSource& source, int64_t begin, const Tensor& out) {
    weights.read_flat(keys.on_disk(source.key), begin, out);
  });
}

void ParamStore::fill(const std::function<void(const ParamSource&, int64_t begin, const Tensor& out)>& values) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    UnitState& state = unit(i);
    const Range needed = plan_.gathers() ? state.owned : Range{0, planned.padded};
    const Tensor host = zeros({needed.size()}, Dtype::kF32);
    for_each_source(planned, [&](const ParamSource& source, Range place) {
      const Range part = intersect(place, needed);
      if (part.empty()) return;
      values(source, part.begin - place.begin, slice(host, shifted(part, -needed.begin)));
    });
    (plan_.gathers() ? state.shard : state.full).copy_(host);
    if (state.master.defined() && plan_.options.compute != Dtype::kF32) {
      state.master.copy_(slice(host, shifted(state.optimised, -needed.begin)));
    }
  }
}

void ParamStore::refresh(int index) {
  const UnitState& state = unit(index);
  if (!state.master.defined() || plan_.options.compute == Dtype::kF32) return;  // master is the weight itself
  (plan_.options.zero.shards_optimizer() ? state.shard : state.full).copy_(state.master);
}

void ParamStore::publish_all(Communicator& comm) {
  const at::NoGradGuard no_grad;
  const bool gather = !plan_.gathers() && plan_.options.zero.shards_optimizer() && plan_.options.world > 1;
  for (int i = 0; i < num_units(); ++i) {
    refresh(i);
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    if (gather && planned.trainable) comm.all_gather(unit(i).full, unit(i).shard, planned.name + " publish").wait();
  }
}

void ParamStore::visit_unit(int index, const Tensor& flat, Dtype dtype, const Visitor& visit) const {
  for_each_source(plan_.units[static_cast<size_t>(index)], [&](const ParamSource& source, Range place) {
    visit(source, to_dtype(slice(flat, place).view(source.shape), dtype));
  });
}

void ParamStore::visit_full(Communicator& comm, int root, Dtype dtype, const Visitor& visit) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    const UnitState& state = unit(i);
    // Masters only where they say more than the weights do.
    const bool from_master = state.master.defined() && dtype == Dtype::kF32 && plan_.options.compute != Dtype::kF32;
    const Tensor mine = from_master ? state.master : plan_.gathers() ? state.shard : state.full;
    Tensor whole = mine;
    if (mine.numel() < planned.padded) {
      whole = pool_.take(planned.padded, dtype_of(mine));
      comm.all_gather(whole, mine, planned.name + " export").wait();
    }
    if (comm.rank() == root) visit_unit(i, whole, dtype, visit);
  }
}

void ParamStore::visit_gradients(Communicator& comm, int root, const Visitor& visit) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    const UnitState& state = unit(i);
    if (!planned.trainable) continue;
    const Tensor mine = state.touched ? state.grad : zeros({planned.shard}, Dtype::kF32, pool_.device());
    Tensor whole = mine;
    if (plan_.options.world > 1) {
      whole = pool_.take(planned.padded, Dtype::kF32);
      comm.all_gather(whole, mine, planned.name + " gradient export").wait();
    }
    if (comm.rank() == root) visit_unit(i, whole, Dtype::kF32, visit);
  }
}

}  // namespace lockstep
