#include "lockstep/state/param_store.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/pinned_memory.h"
#include "lockstep/comm/shared_memory.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/merged_adapter.h"
#include "lockstep/tensor/finite.h"
#include "lockstep/tensor/gpus.h"
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

/// Of a unit in memory that ranks share: whole pages.
int64_t shared_bytes(const Unit& unit) {
  constexpr int64_t kPage = 4096;
  return (unit.kept_padded() * dtype_bytes(unit.kept_dtype()) + kPage - 1) / kPage * kPage;
}

int64_t bytes_to_share(const Plan& plan) {
  int64_t total = 0;
  for (const auto& unit : plan.units) total += shared_bytes(unit);
  return total;
}

/// Whether a master is the weight itself.
bool is_weight(const OptimizerState& piece, const UnitState& state) {
  return piece.master.storage().is_alias_of(state.kept.storage());
}

}  // namespace

const UnitView& UnitState::view_on(int device) const {
  const auto found = std::find_if(views.begin(), views.end(), [&](const auto& view) { return view.device == device; });
  check(found != views.end(), "a unit is read on the devices that the plan says");
  return *found;
}

ParamStore::ParamStore(const Plan& plan, int rank, Devices devices, std::shared_ptr<SharedMemory> memory)
    : plan_(plan), rank_(rank), devices_(std::move(devices)), memory_(std::move(memory)), units_(plan.units.size()) {
  check(static_cast<int>(devices_.blocks.size()) == plan.options.placement.num_devices, "as many devices as planned");
  memory_stands_at(MemoryPhase::kLoad, "");
  if (memory_ != nullptr) memory_->grow(bytes_to_share(plan));
  for (int i = 0; i < num_units(); ++i) build_unit(i);
  for (const auto& step : plan.steps) {
    for (const int index : step.units) {
      const Unit& planned = plan.units[static_cast<size_t>(index)];
      auto& views = unit(index).views;
      if (std::any_of(views.begin(), views.end(), [&](const auto& view) { return view.device == step.device; }))
        continue;
      views.push_back(make_view(planned, step.device, pool(step.device).hollow(planned.padded, planned.dtype)));
    }
  }
}

ParamStore::~ParamStore() = default;

UnitView ParamStore::make_view(const Unit& planned, int device, const Tensor& full) const {
  UnitView view{.device = device, .full = full, .leaves = {}};
  for (const auto& placed : planned.params) {
    // variable_data: a version counter of its own, so that refilling `full` never trips the checks of saved tensors.
    Tensor leaf = full.narrow(0, placed.offset, placed.spec.numel()).view(placed.spec.shape).variable_data();
    leaf.set_requires_grad(planned.trainable);
    view.leaves.push_back(std::move(leaf));
  }
  return view;
}

Tensor ParamStore::make_kept(const Unit& planned) {
  const BufferPool home = pool(plan_.options.placement.offload_params ? Plan::kHost : planned.device);
  if (!plan_.shares()) {
    const int64_t numel = plan_.gathers() ? planned.kept_shard() : planned.kept_padded();
    const bool fetched = plan_.options.placement.offload_params && gpu_of(pool(planned.device).device()).has_value();
    if (!fetched || numel == 0) return home.take(numel, planned.kept_dtype(), MemoryUse::kParams);
    const auto pinned = std::make_shared<PinnedMemory>(numel * dtype_bytes(planned.kept_dtype()));
    return home.over(pinned->bytes(), pinned, numel, planned.kept_dtype(), numel, MemoryUse::kParams);
  }
  check(memory_ != nullptr || home.memory()->rehearsed(), "memory for shared weights");
  void* const here = memory_ == nullptr ? nullptr : memory_->bytes() + placed_;
  placed_ += shared_bytes(planned);
  return home.over(here, memory_, planned.kept_padded(), planned.kept_dtype(), planned.kept_shard(),
                   MemoryUse::kParams);
}

void ParamStore::build_unit(int index) {
  const Unit& planned = plan_.units[static_cast<size_t>(index)];
  UnitState& state = unit(index);
  state.owned = {rank_ * planned.kept_shard(), (rank_ + 1) * planned.kept_shard()};
  state.optimised = plan_.options.zero.shards_optimizer() ? state.owned : Range{0, planned.kept_padded()};
  state.kept = make_kept(planned);
  state.shard = plan_.gathers() ? state.kept : slice(state.kept, state.owned);
  state.whole = plan_.leases() ? pool(planned.device).hollow(planned.kept_padded(), planned.kept_dtype()) : state.kept;
  const Tensor full = planned.quantised ? pool(planned.device).hollow(planned.padded, planned.dtype) : state.whole;
  state.views.push_back(make_view(planned, planned.device, full));
  if (planned.trainable) build_optimizer(index);
}

void ParamStore::build_optimizer(int index) {
  const Unit& planned = plan_.units[static_cast<size_t>(index)];
  UnitState& state = unit(index);
  const int kept_on = plan_.options.placement.offload_params ? Plan::kHost : planned.device;
  const int64_t kept_begin = plan_.gathers() ? state.owned.begin : 0;
  for (const auto& piece : planned.optimizer) {
    OptimizerState made{.device = piece.device,
                        .range = {state.optimised.begin + piece.begin, state.optimised.begin + piece.end}};
    const BufferPool there = pool(piece.device);
    const int64_t numel = made.range.size();
    const bool in_place = planned.dtype == Dtype::kF32 && devices_.at(piece.device) == devices_.at(kept_on);
    made.master = in_place ? slice(state.kept, shifted(made.range, -kept_begin))
                           : there.take(numel, Dtype::kF32, MemoryUse::kOptimizer);
    made.exp_avg = there.take_zeros(numel, Dtype::kF32, MemoryUse::kOptimizer);
    made.exp_avg_sq = there.take_zeros(numel, Dtype::kF32, MemoryUse::kOptimizer);
    state.optimizer.push_back(std::move(made));
  }
  state.grad = pool(planned.device).take_zeros(planned.shard, Dtype::kF32, MemoryUse::kGradients);
}

/// What is read, and no number that is none; else the file is named.
ParamStore::FillValues ParamStore::finite(const Weights& weights, const KeyMap& keys, const FillValues& read,
                                          const AdapterValues* adapters) const {
  return [&weights, &keys, read, adapters](const ParamSource& source, int64_t begin, const Tensor& out) {
    read(source, begin, out);
    if (all_finite(out)) return;
    const auto adapters_file = adapters == nullptr ? std::nullopt : adapters->file_of(source);
    const std::string key = adapters_file ? source.key : keys.on_disk(source.key).name;
    const auto file = adapters_file ? *adapters_file : weights.dir() / weights.file_of(key);
    throw UserError(ExitCode::kNumerics,
                    fmt::format("{}: found NaN or infinity in {}, expected numbers", key, file.string()),
                    "the run that saved it had diverged, or the file is damaged: take an earlier checkpoint");
  };
}

void ParamStore::load(const Weights& weights, const KeyMap& keys, const AdapterValues* adapters) {
  const FillValues values = finite(
      weights, keys,
      [&](const ParamSource& source, int64_t begin, const Tensor& out) {
        if (adapters != nullptr) {
          adapters->read_flat(source, begin, out, weights, keys);
        } else {
          keys.read_flat(weights, source, begin, out);
        }
      },
      adapters);
  if (!weights.any_quantised()) return fill(values);
  fill(values, [&](const ParamSource& source, const QuantFormat& format, int64_t begin, std::span<uint8_t> out) {
    read_stored(weights, keys, source, format, begin, out);
  });
}

void ParamStore::load(const Weights& weights, const KeyMap& keys, MergedAdapter& merged) {
  fill(finite(
      weights, keys,
      [&](const ParamSource& source, int64_t begin, const Tensor& out) { merged.read_flat(source, begin, out); },
      nullptr));
}

/// As the folder has them, or made of values; those of a kind that is none are always values.
void ParamStore::fill_codes(int index, Range needed, const FillValues& values, const ReadQuantised& stored) {
  const Tensor host = zeros({needed.size()}, Dtype::kU8, devices_.host->torch_device());
  if (!host.is_meta()) {
    const ReadQuantised read = [&](const ParamSource& source, const QuantFormat& format, int64_t begin,
                                   std::span<uint8_t> out) {
      if (stored && format.kind != QuantKind::kNone) return stored(source, format, begin, out);
      const auto floats = [&](int64_t first, std::span<float> x) {
        values(source, first, view_memory(x.data(), {static_cast<int64_t>(x.size())}, Dtype::kF32));
      };
      quantise(format, source.shape, floats, begin, out);
    };
    fill_quantised(plan_.units[static_cast<size_t>(index)], needed, read, host);
  }
  (plan_.keeps_shard() ? unit(index).shard : unit(index).kept).copy_(host);
}

void ParamStore::fill(const FillValues& values, const ReadQuantised& stored) {
  const at::NoGradGuard no_grad;
  const OnDevice host_memory(devices_.host);
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    UnitState& state = unit(i);
    memory_stands_at(MemoryPhase::kLoad, planned.name);
    interruption_point();
    const Range needed = plan_.keeps_shard() ? state.owned : Range{0, planned.kept_padded()};
    const Tensor& part_of_rank = plan_.keeps_shard() ? state.shard : state.kept;
    if (planned.quantised) {
      fill_codes(i, needed, values, stored);
      continue;
    }
    const Tensor host = zeros({needed.size()}, Dtype::kF32, devices_.host->torch_device());
    for_each_source(planned, [&](const ParamSource& source, Range place) {
      const Range part = intersect(place, needed);
      if (part.empty()) return;
      values(source, part.begin - place.begin, slice(host, shifted(part, -needed.begin)));
    });
    part_of_rank.copy_(host);
    if (planned.dtype == Dtype::kF16 && !all_finite(part_of_rank)) {
      throw UserError(ExitCode::kNumerics,
                      fmt::format("{}: a weight is larger than float16 can hold (65504)", planned.name),
                      "--torch_dtype bfloat16 or float32");
    }
    for (const auto& piece : state.optimizer) {
      if (!is_weight(piece, state)) piece.master.copy_(slice(host, shifted(piece.range, -needed.begin)));
    }
  }
  if (memory_ != nullptr && !plan_.options.training) memory_->protect();
}

Tensor ParamStore::weights_of(int index, const OptimizerState& piece) const {
  const UnitState& state = unit(index);
  if (is_weight(piece, state)) return {};
  return slice(state.kept, shifted(piece.range, -(plan_.gathers() ? state.owned.begin : 0)));
}

void ParamStore::refresh(int index, const OptimizerState& piece) const {
  if (const Tensor weights = weights_of(index, piece); weights.defined()) weights.copy_(piece.master);
}

void ParamStore::refresh(int index) const {
  for (const auto& piece : unit(index).optimizer) refresh(index, piece);
}

void ParamStore::lend(int index) const {
  const UnitState& state = unit(index);
  if (plan_.options.placement.offload_params) {
    (plan_.gathers() ? slice(state.whole, state.owned) : state.whole).copy_(state.kept, /*non_blocking=*/true);
  }
}

void ParamStore::publish(Communicator& comm, int index, std::deque<Pending>& pending) {
  const Unit& planned = plan_.units[static_cast<size_t>(index)];
  if (plan_.keeps_shard() || !plan_.options.zero.shards_optimizer() || plan_.options.world == 1 || !planned.trainable)
    return;
  const UnitState& state = unit(index);
  if (plan_.options.placement.offload_params) {  // the wires are the device's
    const Tensor whole = pool(planned.device).take(planned.padded, planned.dtype, MemoryUse::kGathered);
    const Tensor mine = slice(whole, state.owned).copy_(state.shard);
    comm.all_gather(whole, mine, planned.name + " publish").wait();
    state.kept.copy_(whole);
    return;
  }
  pending.push_back(comm.all_gather(state.kept, state.shard, planned.name + " publish"));
  if (pending.size() <= 2) return;
  pending.front().wait();
  pending.pop_front();
}

void ParamStore::publish_all(Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::deque<Pending> pending;
  for (int i = 0; i < num_units(); ++i) {
    refresh(i);
    publish(comm, i, pending);
  }
  for (auto& one : pending) one.wait();
  if (plan_.shares()) comm.barrier(kWritten);
}

void ParamStore::visit_unit(int index, const Tensor& flat, Dtype dtype, const Visitor& visit) const {
  for_each_source(plan_.units[static_cast<size_t>(index)], [&](const ParamSource& source, Range place) {
    visit(source, to_dtype(slice(flat, place).view(source.shape), dtype));
  });
}

/// What this rank optimises of a unit, as one f32 tensor: a copy unless it stands in one piece.
Tensor ParamStore::masters_of(int index) const {
  const UnitState& state = unit(index);
  if (state.optimizer.size() == 1) return state.optimizer[0].master;
  const Tensor whole = pool(plan_.units[static_cast<size_t>(index)].device)
                           .take(state.optimised.size(), Dtype::kF32, MemoryUse::kGathered);
  for (const auto& piece : state.optimizer) {
    slice(whole, shifted(piece.range, -state.optimised.begin)).copy_(piece.master);
  }
  return whole;
}

void ParamStore::visit_whole(Communicator& comm, int root, int index, Dtype dtype, const Visitor& visit) {
  const Unit& planned = plan_.units[static_cast<size_t>(index)];
  const OnDevice scope(devices_.at(planned.device));
  memory_stands_at(MemoryPhase::kSave, planned.name);
  const UsedFor use(MemoryUse::kGathered);
  // Masters only where they say more than the weights do.
  const bool from_master = planned.trainable && dtype == Dtype::kF32 && planned.dtype != Dtype::kF32;
  const Tensor mine = from_master ? masters_of(index) : unit(index).kept;
  Tensor whole = mine;
  if (mine.numel() < planned.kept_padded()) {
    whole = pool(planned.device).take(planned.kept_padded(), dtype_of(mine), MemoryUse::kGathered);
    comm.all_gather(whole, move_to(mine, devices_.at(planned.device)), planned.name + " export").wait();
  }
  if (comm.rank() != root) return;
  if (planned.quantised) {
    const Tensor full = pool(planned.device).take(planned.padded, planned.dtype, MemoryUse::kGathered);
    unpack_unit(planned, whole, full);
    whole = full;
  }
  visit_unit(index, whole, dtype, visit);
}

void ParamStore::visit_full(Communicator& comm, int root, Dtype dtype, const Visitor& visit) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) visit_whole(comm, root, i, dtype, visit);
}

void ParamStore::visit_trained(Communicator& comm, int root, const Visitor& visit) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    if (planned.trainable) visit_whole(comm, root, i, planned.dtype, visit);
  }
}

void ParamStore::visit_gradients(Communicator& comm, int root, const Visitor& visit) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < num_units(); ++i) {
    const Unit& planned = plan_.units[static_cast<size_t>(i)];
    const UnitState& state = unit(i);
    if (!planned.trainable) continue;
    const BufferPool there = pool(planned.device);
    const Tensor mine = state.touched ? state.grad : there.take_zeros(planned.shard, Dtype::kF32, MemoryUse::kGathered);
    Tensor whole = mine;
    if (plan_.options.world > 1) {
      whole = there.take(planned.padded, Dtype::kF32, MemoryUse::kGathered);
      comm.all_gather(whole, mine, planned.name + " gradient export").wait();
    }
    if (comm.rank() == root) visit_unit(i, whole, Dtype::kF32, visit);
  }
}

}  // namespace lockstep
