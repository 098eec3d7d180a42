#include "lockstep/session/forecast.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/plan/adapters.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/quantisation.h"

namespace lockstep {
namespace {

/// Peaks that a map over several devices was made with, as a forecast.
MemoryForecast forecast_of_map(const PlannedJob& job, const JobShape& shape) {
  const auto micro_batches = static_cast<int>(shape.options.training ? shape.accumulation : 1);
  const auto costs = block_costs(job.model, shape.options, job.rows.steps(shape.batch, 1), job.devices);
  const int64_t capacity = job.devices.capacities.empty() ? 0 : job.devices.capacities.front();
  std::vector<DeviceLimit> limits;
  limits.reserve(static_cast<size_t>(shape.devices));
  for (int i = 0; i < shape.devices; ++i) {
    limits.push_back({i, capacity == 0 ? kNoLimit : std::max<int64_t>(0, capacity - job.devices.context_bytes)});
  }
  const AutoMap map = make_auto_map(costs, limits, {.micro_batches = micro_batches});
  MemoryForecast forecast;
  for (const auto& load : map.loads) {
    DeviceForecast device{.name = device_name(load.device), .capacity = capacity, .figures = {}};
    device.figures.phases.at(static_cast<size_t>(MemoryPhase::kBackward)).bytes = load.peak();
    forecast.devices.push_back(std::move(device));
  }
  forecast.context_bytes = job.devices.context_bytes;
  forecast.waiting_bytes = job.rows.waiting_bytes(shape.batch);
  const StateBytes state = make_plan(job.model, shape.options).state_bytes();
  const Placement& placement = shape.options.placement;
  forecast.host.figures.phases.at(static_cast<size_t>(MemoryPhase::kStep)).bytes =
      (placement.offload_optimizer ? state.master + state.optimizer : 0) +
      (placement.offload_params ? state.params : 0);
  return forecast;
}

/// Adapters over the language model, as --tuner_type lora makes them, and the same over matrices of 4 bits.
std::vector<LighterTraining> lighter_than(const PlanOptions& now, const Model& model) {
  std::vector<LighterTraining> out;
  if (!now.training || now.quantised) return out;
  const Dialect naming = naming_of_adapters(model, "");
  std::shared_ptr<const AdapterLayout> adapters = now.adapters;
  if (!adapters) {
    const LoraConfig rank_8{.r = 8, .targets = {.names = {"all-linear"}, .regex = {}}};
    adapters = std::make_shared<const AdapterLayout>(
        choose_adapters(model, naming, {.config = rank_8, .components = {Component::kLlm}}));
    out.push_back({{"--tuner_type lora"}, "adapters of rank 8 in place of weights", 1.0, adapters, nullptr});
  }
  const QuantFormat nf4{.kind = QuantKind::kNf4, .nested = true, .dtype = now.compute};
  auto codes = std::make_shared<const Quantisation>(choose_quantisation(model, naming, {.format = nf4}));
  std::vector<std::string> flags{"--quant_method bnb --quant_bits 4"};
  if (!now.adapters) flags.insert(flags.begin(), "--tuner_type lora");
  out.push_back({flags, now.adapters ? "matrices of 4 bits" : "adapters of rank 8 over matrices of 4 bits", 1.1,
                 adapters, codes});
  return out;
}

}  // namespace

MemoryForecast predict_memory(const PlannedJob& job, const JobShape& shape) {
  if (shape.devices > 1) return forecast_of_map(job, shape);
  RehearsalOptions devices = job.devices;
  devices.waiting_bytes = job.rows.waiting_bytes(shape.batch);
  return rehearse(job.model, make_plan(job.model, shape.options), job.rows.steps(shape.batch, shape.accumulation),
                  devices);
}

Advice advice_for(const PlannedJob& job, const MemoryForecast& now) {
  AdviceQuestion question{.job = job.shape,
                          .host_apart = !job.devices.on_cpu || job.devices.virtual_devices,
                          .local_ranks = job.devices.on_cpu ? 1 : job.local_ranks,
                          .components = {}};
  for (const auto& block : job.model.blocks) {
    if (!block->params().empty()) question.components.insert(block->component());
  }
  question.lighter = lighter_than(job.shape.options, job.model);
  if (job.rows.share() > 0) question.most_rows = std::min(question.most_rows, job.rows.share());
  PlannedJob trial = job;  // an evaluation needs less than the way there in training
  trial.devices.evaluate = false;
  return advise(question, now, [&](const JobShape& shape) { return predict_memory(trial, shape); });
}

Json plan_json(const Plan& plan, const Compatibility& components, const MemoryForecast& memory, const Advice& advice) {
  Json out = parse_json(plan.json(), "the plan");
  out["components"] = components.json();
  out["memory"] = memory.as_json();
  out["advice"] = advice.json();
  return out;
}

}  // namespace lockstep
