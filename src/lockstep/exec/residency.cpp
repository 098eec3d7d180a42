#include "lockstep/exec/residency.h"

#include <utility>

#include <ATen/core/Tensor.h>

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
    tensors.push_back(home_->store_.unit(place.unit).leaves[static_cast<size_t>(place.index)]);
  }
  return tensors;
}

Residency::Residency(ParamStore& store, Communicator& comm)
    : store_(store), comm_(comm), slots_(static_cast<size_t>(store.num_units())) {}

void Residency::launch(int unit) {
  Slot& slot = slots_[static_cast<size_t>(unit)];
  if (slot.resident || slot.gathering.active()) return;
  UnitState& state = store_.unit(unit);
  store_.pool().refill(state.full);
  slot.gathering =
      comm_.all_gather(state.full, state.shard, store_.plan().units[static_cast<size_t>(unit)].name + " gather");
}

void Residency::prefetch(const Step& step) {
  if (!store_.plan().gathers()) return;
  for (const int unit : step.units) launch(unit);
}

Lease Residency::borrow(const Step& step) {
  Lease lease;
  if (store_.plan().gathers()) {
    prefetch(step);
    for (const int unit : step.units) {
      Slot& slot = slots_[static_cast<size_t>(unit)];
      if (!slot.resident) slot.gathering.wait();
      slot.resident = true;
      ++slot.leases;
    }
  }
  lease.home_ = this;
  lease.step_ = &step;
  return lease;
}

void Residency::release(const Step& step) {
  if (!store_.plan().gathers()) return;
  for (const int unit : step.units) {
    Slot& slot = slots_[static_cast<size_t>(unit)];
    if (--slot.leases > 0) continue;
    slot.resident = false;
    BufferPool::drop(store_.unit(unit).full);
  }
}

}  // namespace lockstep
