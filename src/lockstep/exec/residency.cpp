#include "lockstep/exec/residency.h"

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/clock.h"

namespace lockstep {

Lease::~Lease() { release(); }

Lease::Lease(Lease&& other) noexcept
    : home_(std::exchange(other.home_, nullptr)), step_(std::exchange(other.step_, nullptr)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    home_ = std::exchange(other.home_, nullptr);
    step_ = std::exchange(other.step_, nullptr);
  }
  return *this;
}

void Lease::release() {
  if (home_ != nullptr) std::exchange(home_, nullptr)->release(*step_);
}

std::vector<Tensor> Lease::params() const {
  std::vector<Tensor> tensors;
  tensors.reserve(step_->params.size());
  for (const auto& place : step_->params) {
    const UnitView& view = home_->store_.unit(place.unit).view_on(step_->device);
    tensors.push_back(view.leaves[static_cast<size_t>(place.index)]);
  }
  return tensors;
}

Residency::Residency(ParamStore& store, Communicator& comm)
    : store_(store), comm_(comm), slots_(static_cast<size_t>(store.num_units())) {
  for (int unit = 0; unit < store.num_units(); ++unit) copies_.emplace_back(store.unit(unit).views.size(), 0);
  if (store.plan().options.placement.offload_params) copier_ = std::make_unique<Copier>();
}

/// What was fetched ahead and never borrowed may still be read from host memory that goes with the store. A GPU that stands
/// still or is broken fetches no more.
Residency::~Residency() {
  copier_.reset();
  const auto latest = Clock::now() + std::chrono::seconds(2);
  try {
    for (const Slot& slot : slots_) {
      while (!slot.copied.over() && Clock::now() < latest) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): of a broken GPU
  }
}

/// Begins to bring a unit to its own device.
void Residency::launch(int unit) {
  Slot& slot = slots_[static_cast<size_t>(unit)];
  if (slot.resident || slot.gathering.active() || slot.copying.active()) return;
  const UnitState& state = store_.unit(unit);
  const int device = store_.plan().units[static_cast<size_t>(unit)].device;
  store_.pool(device).refill(state.whole, MemoryUse::kGathered);
  if (!copier_) return gather(unit);
  if (store_.devices().at(device)->rehearsed()) return store_.lend(unit);
  copy_to(slot, unit, device);
}

/// From host memory, beside what runs. A GPU's copy begins when what used its memory before is over there.
void Residency::copy_to(Slot& slot, int unit, int device) {
  const std::string& there = store_.devices().at(device)->torch_device();
  const bool on_gpu = gpu_of(there).has_value();
  const GpuMoment free = on_gpu ? GpuMoment::now(there) : GpuMoment();
  slot.copying = copier_->start([this, &slot, unit, there, on_gpu, free] {
    const at::NoGradGuard no_grad;
    std::optional<OnCopyStream> scope;
    if (on_gpu) scope.emplace(there);
    free.order_current_stream();
    store_.lend(unit);
    if (on_gpu) slot.copied = GpuMoment::now(there);
  });
}

/// The other ranks' parts, when this rank's stands where it is sent from.
void Residency::gather(int unit) {
  if (!store_.plan().gathers()) return;
  const UnitState& state = store_.unit(unit);
  const Tensor mine = copier_ ? state.whole.narrow(0, state.owned.begin, state.owned.size()) : state.shard;
  slots_[static_cast<size_t>(unit)].gathering =
      comm_.all_gather(state.whole, mine, store_.plan().units[static_cast<size_t>(unit)].name + " gather");
}

/// Counted when the unit is there: of what could not be brought nobody has a lease.
void Residency::hold(int unit) {
  Slot& slot = slots_[static_cast<size_t>(unit)];
  if (!slot.resident) {
    if (store_.plan().leases()) bring(unit);
    unpack(unit);
    slot.resident = true;
  }
  ++slot.leases;
}

/// Waits until all of a unit is on its own device, as it is kept.
void Residency::bring(int unit) {
  Slot& slot = slots_[static_cast<size_t>(unit)];
  launch(unit);
  if (copier_) {
    slot.copying.wait();
    slot.copied.order_current_stream();
    gather(unit);
  }
  slot.gathering.wait();
}

/// Codes become what is computed with, and are not needed beside it.
void Residency::unpack(int unit) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  if (!planned.quantised) return;
  const at::NoGradGuard no_grad;
  const UnitState& state = store_.unit(unit);
  const Tensor& full = state.views.front().full;
  store_.pool(planned.device).refill(full, MemoryUse::kGathered);
  const OnDevice scope(store_.devices().at(planned.device));
  try {
    unpack_unit(planned, state.whole, full);
  } catch (...) {
    BufferPool::drop(full);
    throw;
  }
  if (store_.plan().leases()) BufferPool::drop(state.whole);
}

void Residency::let_go(int unit) {
  Slot& slot = slots_[static_cast<size_t>(unit)];
  if (--slot.leases > 0) return;
  slot.resident = false;
  BufferPool::drop(store_.unit(unit).views.front().full);
}

/// A tied unit, read on a device that is not its own.
void Residency::borrow_copy(int unit, int device) {
  const UnitState& state = store_.unit(unit);
  const UnitView& view = state.view_on(device);
  int& leases = copies_[static_cast<size_t>(unit)][static_cast<size_t>(&view - state.views.data())];
  if (leases == 0) {
    const at::NoGradGuard no_grad;
    const bool leased = store_.plan().leases(store_.plan().units[static_cast<size_t>(unit)]);
    if (leased) hold(unit);
    try {
      store_.pool(device).refill(view.full, MemoryUse::kGathered);
      view.full.copy_(state.views.front().full);
    } catch (...) {
      BufferPool::drop(view.full);
      if (leased) let_go(unit);
      throw;
    }
    if (leased) let_go(unit);
  }
  ++leases;
}

void Residency::prefetch(const Step& step) {
  if (!store_.plan().leases()) return;
  for (const int unit : step.units) launch(unit);
}

void Residency::take(const Step& step, int unit) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  if (planned.device != step.device) {
    borrow_copy(unit, step.device);
  } else if (store_.plan().leases(planned)) {
    hold(unit);
  }
}

void Residency::give_back(const Step& step, int unit) {
  const UnitState& state = store_.unit(unit);
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  if (planned.device != step.device) {
    const UnitView& view = state.view_on(step.device);
    int& leases = copies_[static_cast<size_t>(unit)][static_cast<size_t>(&view - state.views.data())];
    if (--leases == 0) BufferPool::drop(view.full);
  } else if (store_.plan().leases(planned)) {
    let_go(unit);
  }
}

/// All of a step's units or none: what stayed held for nobody would stay for good, and be computed with when it has changed.
Lease Residency::borrow(const Step& step) {
  prefetch(step);
  size_t taken = 0;
  try {
    for (; taken < step.units.size(); ++taken) take(step, step.units[taken]);
  } catch (...) {
    while (taken > 0) give_back(step, step.units[--taken]);
    throw;
  }
  Lease lease;
  lease.home_ = this;
  lease.step_ = &step;
  return lease;
}

void Residency::release(const Step& step) {
  for (const int unit : step.units) give_back(step, unit);
}

}  // namespace lockstep
