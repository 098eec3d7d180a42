#include "lockstep/plan/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/quantisation.h"

namespace lockstep {
namespace {

int64_t round_up(int64_t value, int64_t quantum) { return (value + quantum - 1) / quantum * quantum; }

/// Whether weight decay is for it, as the HF Trainer has it: for all but LayerNorms and what is called a bias or a norm. Of
/// Qwen2.5-VL's tower "norm1" is thus decayed. Source: transformers 5.23 Trainer.get_decay_parameter_names.
bool decays(const ParamSpec& spec, const std::vector<ParamSpec>& beside) {
  const std::string& key = spec.sources.at(0).key;
  if (key.find("bias") != std::string::npos) return false;
  if (spec.sources[0].shape.size() != 1) return true;
  const bool of_module = key.ends_with(".weight");
  const std::string module = of_module ? key.substr(0, key.size() - std::string(".weight").size()) : key;
  if (module.find("layernorm") != std::string::npos || module.ends_with("_norm") || module.ends_with(".norm") ||
      module == "norm") {
    return false;
  }
  return !of_module || std::ranges::none_of(
                           beside, [&](const ParamSpec& other) { return other.sources.at(0).key == module + ".bias"; });
}

/// Matrices first, so that what decays is one range; of those, what learns at the same rate. Every parameter begins at a
/// cache line.
void place_params(Unit& unit, int world) {
  std::ranges::stable_sort(unit.params, [](const PlacedParam& a, const PlacedParam& b) {
    return std::pair(!a.decays, a.spec.rate) < std::pair(!b.decays, b.spec.rate);
  });
  int64_t end = 0;
  for (auto& placed : unit.params) {
    placed.offset = end;
    end = round_up(end + placed.spec.numel(), Plan::kAlign);
    const UpdateRange range{placed.offset, end, placed.decays, placed.spec.rate};
    const bool alike =
        !unit.updates.empty() && unit.updates.back().decays == range.decays && unit.updates.back().rate == range.rate;
    if (!alike) unit.updates.push_back(range);
    unit.updates.back().end = end;
  }
  unit.numel = end;
  unit.padded = round_up(end, world * Plan::kAlign);
  unit.updates.back().end = unit.padded;
  unit.shard = unit.padded / world;
}

/// Units of the blocks, and for each parameter of each block its place, tied ones included.
class Placer {
 public:
  Placer(const Model& model, const PlanOptions& options, Plan& plan)
      : model_(model),
        options_(options),
        freezing_(model, options.freeze, options.frozen),
        adapters_(options.adapters.get()),
        plan_(plan) {}

  void run() {
    for (size_t i = 0; i < model_.blocks.size(); ++i) add_units(i, *model_.blocks[i]);
    for (size_t i = 0; i < model_.blocks.size(); ++i) add_step(static_cast<int>(i), *model_.blocks[i]);
  }

 private:
  /// The parameters that a block owns: a tied head as well, where adapters untie it.
  std::vector<ParamSpec> owned_by(const Block& block) const {
    std::vector<ParamSpec> owned;
    for (const auto& spec : block.params()) {
      if (spec.tied && !unties()) continue;
      owned.push_back(spec);
      if (!spec.tied) continue;
      owned.back().tied = false;
      owned.back().sources[0].key = spec.untied_key;
    }
    return owned;
  }
  bool unties() const { return adapters_ != nullptr && adapters_->unties; }

  void add_units(size_t index, const Block& block) {
    std::vector<ParamSpec> owned = owned_by(block);
    if (adapters_ == nullptr) {
      std::vector<ParamSpec> trained;
      std::erase_if(owned, [&](ParamSpec& spec) {
        if (!options_.training || !freezing_.trains(block, spec)) return false;
        require_unquantised(spec, "trained");
        trained.push_back(std::move(spec));
        return true;
      });
      const std::string name = owned.empty() ? block.name() : block.name() + " trained";
      add_frozen(index, block, std::move(owned));
      return add_unit(index, {.name = name, .dtype = options_.compute, .trainable = true}, std::move(trained));
    }
    std::vector<ParamSpec> whole;
    std::erase_if(owned, [&](ParamSpec& spec) {
      if (!trained_whole(spec)) return false;
      whole.push_back(std::move(spec));
      return true;
    });
    add_frozen(index, block, std::move(owned));
    for (auto& spec : whole) {
      require_unquantised(spec, "named by --modules_to_save");
      if (spec.shape.size() == 1) spec.rate = adapters_->loraplus_ratio;
    }
    add_unit(index, {.name = block.name() + " whole", .dtype = options_.compute, .trainable = true}, std::move(whole));
    const Dtype dtype = options_.training ? Dtype::kF32 : options_.compute;
    for (const AdapterLayout* layout : options_.all_adapters()) {
      add_unit(index, {.name = block.name() + " adapter" + layout->suffix(), .dtype = dtype, .trainable = true},
               layout->params_of(model_, index));
    }
  }

  bool is_quantised(const ParamSpec& spec) const {
    return options_.quantised != nullptr && std::ranges::any_of(spec.sources, [&](const ParamSource& source) {
             return options_.quantised->format_of(source.key).has_value();
           });
  }

  void require_unquantised(const ParamSpec& spec, const char* what) const {
    if (!is_quantised(spec)) return;
    throw usage_error(
        fmt::format("{} is kept as codes of few bits, and {}: codes cannot be trained", spec.sources[0].key, what),
        "--tuner_type lora trains adapters over it; --llm_int8_skip_modules NAME keeps it as it is");
  }

  void add_frozen(size_t index, const Block& block, std::vector<ParamSpec> owned) {
    std::vector<ParamSpec> codes;
    std::erase_if(owned, [&](ParamSpec& spec) {
      if (!is_quantised(spec)) return false;
      codes.push_back(std::move(spec));
      return true;
    });
    add_unit(index, {.name = block.name(), .dtype = options_.compute}, std::move(owned));
    if (codes.empty()) return;
    add_unit(index, {.name = block.name() + " quantised", .dtype = options_.compute}, std::move(codes));
    plan_.units.back().quantised = options_.quantised->store_of(plan_.units.back(), options_.world);
  }

  /// Whether a parameter is trained beside the adapters; parts that are not stay as they are.
  bool trained_whole(ParamSpec& spec) const {
    int64_t learns = 0;
    for (auto& source : spec.sources) {
      source.learns = adapters_->saved.contains(source.key);
      learns += source.learns ? 1 : 0;
    }
    if (learns > 0 && learns < static_cast<int64_t>(spec.sources.size()) && spec.shape.size() > 1) {
      throw usage_error(
          fmt::format("--modules_to_save: {} is computed as one matrix with others, {} of which are not named",
                      std::ranges::find_if(spec.sources, &ParamSource::learns)->key,
                      static_cast<int64_t>(spec.sources.size()) - learns),
          "name all of them, or adapt them with --target_modules");
    }
    if (learns > 0) return true;
    for (auto& source : spec.sources) source.learns = true;
    return false;
  }

  void add_unit(size_t block_index, Unit unit, std::vector<ParamSpec> specs) {
    if (specs.empty()) return;
    const Block& block = *model_.blocks[block_index];
    for (auto& spec : specs) {
      const bool decaying = options_.decays_all || decays(spec, block.params());
      unit.params.push_back({std::move(spec), 0, decaying});
    }
    unit.component = block.component();
    unit.trainable = unit.trainable && options_.training;
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
      use(step, spec.tied && unties() ? spec.untied_key : spec.sources.at(0).key, block);
    }
    const auto layouts = options_.all_adapters();
    for (size_t k = 0; k < layouts.size(); ++k) {
      for (auto one : layouts[k]->use_of(model_, static_cast<size_t>(index), step.params.size()).params) {
        one.adapter = k;
        step.adapted.params.push_back(std::move(one));
      }
      for (const auto& spec : layouts[k]->params_of(model_, static_cast<size_t>(index))) {
        use(step, spec.sources.at(0).key, block);
      }
    }
    plan_.steps.push_back(std::move(step));
  }

  void use(Step& step, const std::string& key, const Block& block) {
    const auto place = places_.find(key);
    check(place != places_.end(), fmt::format("{}: tied to {}, which no block owns", block.name(), key));
    step.params.push_back(place->second);
    if (std::find(step.units.begin(), step.units.end(), place->second.unit) != step.units.end()) return;
    step.units.push_back(place->second.unit);
    ++plan_.units[static_cast<size_t>(place->second.unit)].uses;
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
  Freezing freezing_;
  const AdapterLayout* adapters_;
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

/// The last blocks are soonest behind the turn, so that what they keep is held for the shortest time.
void keep_last_blocks(Plan& plan) {
  std::map<int, int> left;
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
    if (!step->recompute) continue;
    int& here = left.try_emplace(step->device, plan.options.kept_blocks).first->second;
    step->recompute = here-- <= 0;
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
  Plan plan;
  plan.options = options;
  plan.options.frozen.clear();  // what the model has of it
  for (const auto& block : model.blocks) {
    if (options.frozen.contains(block->component())) plan.options.frozen.insert(block->component());
  }
  Placer(model, options, plan).run();
  mark_gradients(model, plan);
  keep_last_blocks(plan);
  mark_arrivals(model, plan);
  if (options.training && plan.num_trainable() == 0) {
    throw usage_error(fmt::format("nothing is left to train: every component of this {} model is frozen", model.family),
                      "set one of --freeze_llm, --freeze_vit, --freeze_aligner to false, or use --train llm");
  }
  return plan;
}

int Plan::num_recomputed() const {
  std::map<int, int> by_device;
  int most = 0;
  for (const Step& step : steps) {
    if (step.recompute) most = std::max(most, ++by_device[step.device]);
  }
  return most;
}

bool Plan::drops() const {
  return options.training && std::ranges::any_of(steps, [](const Step& step) {
           return std::ranges::any_of(step.adapted.params, [](const AdaptedParam& one) { return one.dropout > 0; });
         });
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
  int64_t largest = 0, second = 0;
  for (const auto& unit : units) {
    const int64_t width = dtype_bytes(unit.kept_dtype());
    bytes.params += (keeps_shard() ? unit.kept_shard() : unit.kept_padded()) * width;
    const int64_t unpacked = unit.padded * dtype_bytes(unit.dtype);
    const int64_t full = (gathers() ? unit.kept_padded() * width : 0) + (unit.quantised ? unpacked : 0);
    if (full > largest) {
      second = std::exchange(largest, full);
    } else {
      second = std::max(second, full);
    }
    if (!unit.trainable) continue;
    const int64_t optimised = options.zero.shards_optimizer() ? unit.shard : unit.padded;
    bytes.master += unit.dtype == Dtype::kF32 ? 0 : optimised * 4;
    bytes.optimizer += optimised * 8;
    bytes.gradients += unit.shard * 4;
  }
  bytes.transient = largest + second;
  return bytes;
}

}  // namespace lockstep
