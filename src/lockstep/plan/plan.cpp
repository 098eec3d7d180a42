#include "lockstep/plan/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int64_t round_up(int64_t value, int64_t quantum) { return (value + quantum - 1) / quantum * quantum; }

bool matches_prefix(const ParamSpec& spec, const std::vector<std::string>& prefixes) {
  return std::all_of(spec.sources.begin(), spec.sources.end(), [&](const ParamSource& source) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& p) { return source.key.starts_with(p); });
  });
}

/// Whether a block is frozen by prefix; part of a block cannot be, because it is gathered and reduced as one.
bool frozen_by_prefix(const Block& block, const std::vector<std::string>& prefixes) {
  int64_t matched = 0, owned = 0;
  for (const auto& spec : block.params()) {
    if (spec.tied) continue;
    ++owned;
    matched += matches_prefix(spec, prefixes) ? 1 : 0;
  }
  if (matched == 0 || matched == owned) return matched > 0;
  throw usage_error(
      fmt::format("--freeze_parameters: {} of {} parameters of block {} match; a block is frozen or trained whole",
                  matched, owned, block.name()),
      "give a prefix of the whole block: " + block.name());
}

void check_prefixes(const Model& model, const std::vector<std::string>& prefixes) {
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block->name());
  for (const auto& prefix : prefixes) {
    const bool found = std::any_of(model.blocks.begin(), model.blocks.end(), [&](const auto& block) {
      return std::any_of(block->params().begin(), block->params().end(),
                         [&](const ParamSpec& spec) { return matches_prefix(spec, {prefix}); });
    });
    if (found) continue;
    const auto near = nearest_name(prefix, names);
    throw usage_error(
        fmt::format("--freeze_parameters {}: no parameter of this {} model begins so", prefix, model.family),
        near.empty() ? "see `lockstep plan --model DIR` for the names" : "did you mean " + near + "?");
  }
}

/// Matrices first, so that what decays is one range; every parameter begins at a cache line.
void place_params(Unit& unit, int world) {
  std::stable_partition(unit.params.begin(), unit.params.end(), [](const auto& p) { return p.spec.decays(); });
  int64_t end = 0;
  for (auto& placed : unit.params) {
    placed.offset = end;
    end = round_up(end + placed.spec.numel(), Plan::kAlign);
    if (placed.spec.decays()) unit.decay_numel = end;
  }
  unit.numel = end;
  unit.padded = round_up(end, world * Plan::kAlign);
  unit.shard = unit.padded / world;
}

/// Units of the blocks, and for each parameter of each block its place, tied ones included.
class Placer {
 public:
  Placer(const Model& model, const PlanOptions& options, Plan& plan) : model_(model), options_(options), plan_(plan) {}

  void run() {
    for (size_t i = 0; i < model_.blocks.size(); ++i) add_unit(i, *model_.blocks[i]);
    for (size_t i = 0; i < model_.blocks.size(); ++i) add_step(static_cast<int>(i), *model_.blocks[i]);
  }

 private:
  void add_unit(size_t block_index, const Block& block) {
    Unit unit{.name = block.name(), .component = block.component(), .params = {}};
    for (const auto& spec : block.params()) {
      if (!spec.tied) unit.params.push_back({spec, 0});
    }
    if (unit.params.empty()) return;
    unit.trainable = options_.training && !options_.frozen.contains(block.component()) &&
                     !frozen_by_prefix(block, options_.freeze_prefixes);
    unit.uses = 0;
    place_params(unit, options_.world);
    unit.device = device_of(block_index);
    if (unit.trainable) place_optimizer(unit, block_index);
    const int index = static_cast<int>(plan_.units.size());
    for (size_t p = 0; p < unit.params.size(); ++p) {
      places_[unit.params[p].spec.sources.at(0).key] = {index, static_cast<int>(p)};
    }
    plan_.units.push_back(std::move(unit));
  }

  void add_step(int index, const Block& block) {
    Step step{.block = index, .runs_on = block.runs_on()};
    step.device = device_of(static_cast<size_t>(index));
    for (const auto& spec : block.params()) {
      const auto place = places_.find(spec.sources.at(0).key);
      check(place != places_.end(),
            fmt::format("{}: tied to {}, which no block owns", block.name(), spec.sources[0].key));
      step.params.push_back(place->second);
      if (std::find(step.units.begin(), step.units.end(), place->second.unit) == step.units.end()) {
        step.units.push_back(place->second.unit);
        ++plan_.units[static_cast<size_t>(place->second.unit)].uses;
      }
    }
    plan_.steps.push_back(std::move(step));
  }

  int device_of(size_t block) const {
    const auto& devices = options_.placement.device_of_block;
    if (devices.empty()) return 0;
    check(devices.size() == model_.blocks.size(), "a placement has a device for every block");
    const int device = devices[block];
    check(device >= 0 && device < options_.placement.num_devices, "a block stands on a device that there is");
    return device;
  }

  void place_optimizer(Unit& unit, size_t block) const {
    const Placement& placement = options_.placement;
    const int64_t elements = plan_.optimised(unit);
    std::vector<OptimizerShare> shares{{unit.device, 0, 1}};
    if (placement.offload_optimizer) {
      shares = {{Plan::kHost, 0, 1}};
    } else if (!placement.optimizer_shares.empty() && !placement.optimizer_shares[block].empty()) {
      shares = placement.optimizer_shares[block];
    }
    int64_t begin = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      const auto wanted = static_cast<int64_t>(shares[i].end * static_cast<double>(elements));
      const int64_t end = i + 1 == shares.size() ? elements : std::min(elements, round_up(wanted, Plan::kAlign));
      if (end > begin) unit.optimizer.push_back({shares[i].device, begin, end});
      begin = end;
    }
  }

  const Model& model_;
  const PlanOptions& options_;
  Plan& plan_;
  std::map<std::string, ParamPlace> places_;
};

/// Walks the slots: which versions need a gradient, hence which steps have work on the way back.
void mark_gradients(const Model& model, Plan& plan) {
  std::set<std::string> differentiable;
  for (auto& step : plan.steps) {
    const Block& block = *model.blocks[static_cast<size_t>(step.block)];
    for (const auto& slot : block.reads()) {
      if (differentiable.contains(slot)) step.grad_inputs.push_back(slot);
    }
    const bool trains = std::any_of(step.units.begin(), step.units.end(),
                                    [&](int u) { return plan.units[static_cast<size_t>(u)].trainable; });
    step.backward = trains || !step.grad_inputs.empty();
    for (const auto& slot : block.writes()) {
      // A block that runs only where there is a medium leaves the slot as it was elsewhere: its version keeps its need.
      if (step.backward) differentiable.insert(slot);
      if (!step.backward && block.always_runs()) differentiable.erase(slot);
    }
    const bool tower = block.component() == Component::kVision || block.component() == Component::kAudio;
    const bool wanted = tower ? plan.options.recompute_vision : plan.options.recompute;
    step.recompute = step.backward && wanted && block.may_recompute();
  }
}

/// Walks the slots again: on which devices a slot may stand when a step reads it. A block that runs only where there is
/// a medium may have been left out, so what stood there before may still.
void mark_arrivals(const Model& model, Plan& plan) {
  std::map<std::string, std::set<int>> holders;
  for (auto& step : plan.steps) {
    const Block& block = *model.blocks[static_cast<size_t>(step.block)];
    for (const auto& slot : block.reads()) {
      auto [held, from_batch] = holders.try_emplace(slot, std::set<int>{Plan::kHost});
      if (held->second != std::set<int>{step.device}) step.arrivals.push_back(slot);
      if (block.always_runs()) held->second.clear();
      held->second.insert(step.device);  // it has moved there
    }
    for (const auto& slot : block.writes()) {
      if (block.always_runs()) holders[slot].clear();
      holders[slot].insert(step.device);
    }
  }
}

}  // namespace

std::vector<StageRange> stages_of(const Plan& plan) {
  std::vector<StageRange> stages;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (stages.empty() || stages.back().device != plan.steps[i].device) stages.push_back({plan.steps[i].device, i, i});
    stages.back().end = i + 1;
  }
  return stages;
}

int64_t Unit::used_numel() const {
  int64_t used = 0;
  for (const auto& placed : params) used += placed.spec.numel();
  return used;
}

Plan make_plan(const Model& model, const PlanOptions& options) {
  check(options.world > 0, "a plan needs a world of at least one rank");
  check_prefixes(model, options.freeze_prefixes);
  Plan plan;
  plan.options = options;
  plan.options.frozen.clear();  // what the model has of it
  for (const auto& block : model.blocks) {
    if (options.frozen.contains(block->component())) plan.options.frozen.insert(block->component());
  }
  Placer(model, options, plan).run();
  mark_gradients(model, plan);
  mark_arrivals(model, plan);
  if (options.training && plan.num_trainable() == 0) {
    throw usage_error(fmt::format("nothing is left to train: every component of this {} model is frozen", model.family),
                      "set one of --freeze_llm, --freeze_vit, --freeze_aligner to false, or use --train llm");
  }
  return plan;
}

int64_t Plan::num_params() const {
  int64_t total = 0;
  for (const auto& unit : units) total += unit.used_numel();
  return total;
}

int64_t Plan::num_trainable() const {
  int64_t total = 0;
  for (const auto& unit : units) total += unit.trainable ? unit.used_numel() : 0;
  return total;
}

StateBytes Plan::state_bytes() const {
  StateBytes bytes;
  const int64_t width = dtype_bytes(options.compute);
  int64_t largest = 0, second = 0;
  for (const auto& unit : units) {
    const int64_t full = unit.padded * width;
    bytes.params += gathers() ? unit.shard * width : full;
    if (full > largest) {
      second = std::exchange(largest, full);
    } else {
      second = std::max(second, full);
    }
    if (!unit.trainable) continue;
    const int64_t optimised = options.zero.shards_optimizer() ? unit.shard : unit.padded;
    bytes.master += options.compute == Dtype::kF32 ? 0 : optimised * 4;
    bytes.optimizer += optimised * 8;
    bytes.gradients += unit.shard * 4;
  }
  bytes.transient = gathers() ? largest + second : 0;
  return bytes;
}

}  // namespace lockstep
