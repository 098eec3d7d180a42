#include "lockstep/exec/cost_meter.h"

#include <algorithm>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int64_t bytes_for(const MemoryFigures& figures, MemoryUse use) { return figures.by_use[static_cast<size_t>(use)]; }

/// In float32, from the last use of a pass to the first.
std::map<int, int64_t> gradients_of_tied_weights(const Plan& plan) {
  std::map<int, int64_t> bytes;
  std::vector<int> owners(plan.units.size(), -1);
  for (const Step& step : plan.steps) {
    for (const int u : step.units) {
      const Unit& unit = plan.units[static_cast<size_t>(u)];
      int& owner = owners[static_cast<size_t>(u)];
      if (owner >= 0 && unit.trainable) bytes[owner] = unit.padded * 4;
      if (owner < 0) owner = step.block;
    }
  }
  return bytes;
}

}  // namespace

CostMeter::CostMeter(const Model& model, const Plan& plan, DeviceMemory& device, std::vector<BlockCost>& costs)
    : model_(model),
      device_(device),
      costs_(costs),
      state_(device.alive_bytes()),
      gradients_(bytes_for(device.figures(), MemoryUse::kGradients)),
      tied_gradients_(gradients_of_tied_weights(plan)) {
  check(costs.size() == model.blocks.size() && plan.options.placement.num_devices == 1,
        "costs of all blocks, measured on one device");
  settle();
}

ExecutorHooks CostMeter::hooks() {
  return {.stands = [this](const Step& step, MemoryPhase phase) { begins(step, phase); },
          .reads = [this](const Step& step, const Flow& in) { reads(step, in); }};
}

void CostMeter::next_pass() {
  ends(/*pass_is_over=*/true);
  running_ = nullptr;
  settle();
}

void CostMeter::begins(const Step& step, MemoryPhase phase) {
  ends(/*pass_is_over=*/false);
  running_ = &step;
  on_way_back_ = phase == MemoryPhase::kBackward;
  waiting_ = on_way_back_ ? waiting_elsewhere(step) : 0;
  device_.reset_peaks();
}

/// The gradient of a tied weight waits for its owner, on the owner's device.
int64_t CostMeter::waiting_elsewhere(const Step& step) const {
  int64_t tied = 0;
  for (const auto& [owner, bytes] : tied_gradients_) {
    if (owner != step.block) tied += bytes;
  }
  return std::clamp<int64_t>(bytes_for(device_.figures(), MemoryUse::kGradients) - gradients_, 0, tied);
}

void CostMeter::reads(const Step& step, const Flow& in) {
  if (on_way_back_) return;  // run again for its gradients
  for (const auto& [slot, value] : in.entries()) {
    const auto found = standing_.find(slot);
    if (found == standing_.end()) continue;  // of the batch
    Passed& passed = passed_[found->second];
    passed.several = passed.several || (passed.reader >= 0 && passed.reader != step.block);
    passed.reader = step.block;
    passed.bytes += static_cast<int64_t>(value.nbytes());
  }
}

void CostMeter::ends(bool pass_is_over) {
  if (running_ == nullptr) return;
  const auto block = static_cast<size_t>(running_->block);
  const MemoryFigures figures = device_.figures();
  if (!on_way_back_) {
    // When the pass is over its results are gone already.
    const int64_t alive = pass_is_over ? alive_ : bytes_for(figures, MemoryUse::kActivations);
    saved_[block] = alive - alive_;
    alive_behind_[block] = alive_ = alive;
    note_writes();
  }
  work_[block] = std::max(work_[block], figures.peak().bytes - state_ - alive_behind_[block] - waiting_);
}

void CostMeter::note_writes() {
  for (const auto& slot : model_.blocks[static_cast<size_t>(running_->block)]->writes()) {
    standing_[slot] = passed_.size();
    passed_.push_back(
        {.writer = static_cast<size_t>(running_->block), .writer_keeps = running_->backward && !running_->recompute});
  }
}

void CostMeter::settle() {
  for (const Passed& passed : passed_) {
    if (passed.reader < 0 || passed.several || passed.writer_keeps) continue;
    saved_[passed.writer] -= passed.bytes;
    work_[passed.writer] += passed.bytes;  // it is there while it is made
    saved_[static_cast<size_t>(passed.reader)] += passed.bytes;
  }
  for (size_t block = 0; block < saved_.size(); ++block) {
    costs_[block].saved = std::max(costs_[block].saved, saved_[block]);
    costs_[block].work = std::max(costs_[block].work, work_[block]);
  }
  passed_.clear();
  standing_.clear();
  alive_ = 0;
  for (auto* figures : {&alive_behind_, &saved_, &work_}) figures->assign(costs_.size(), 0);
}

}  // namespace lockstep
