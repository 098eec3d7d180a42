#include "lockstep/exec/rehearsal.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/exec/executor.h"
#include "lockstep/exec/rehearsal_backend.h"
#include "lockstep/model/batch.h"
#include "lockstep/state/sharded_adamw.h"

namespace lockstep {
namespace {

/// Small tensors that blocks read with the host's eyes keep their values: where media lie and, where the host computes,
/// which labels count.
bool keeps_values(const std::string& slot, bool on_cpu) {
  const std::set<std::string> hollow{"input_ids", "positions", "pixel_values", "media_index"};
  return slot == "labels" ? on_cpu : !hollow.contains(slot);
}

class Rehearsal {
 public:
  Rehearsal(const Model& model, const Plan& plan, const RehearsalOptions& options)
      : plan_(plan),
        options_(options),
        devices_(make_devices(plan, options)),
        host_(devices_.host),
        comm_(World{.rank = 0, .size = plan.options.world, .local_size = plan.options.world},
              make_rehearsal_backend(plan.options.world, options.transport)),
        store_(plan, /*rank=*/0, devices_),
        executor_(model, plan, store_, comm_),
        adamw_(store_, comm_, {}) {}

  static Devices make_devices(const Plan& plan, const RehearsalOptions& options) {
    Devices devices = Devices::rehearsed(plan.options.placement.num_devices,
                                         {.rounding = options.on_cpu ? 64 : 512, .row_kernels = options.on_cpu},
                                         options.on_cpu && !options.virtual_devices);
    // Blocks on "cpu" stand on a device behind those that the rank drives: the host.
    const size_t driven = options.device_names.size();
    if (driven > 0 && devices.blocks.size() > driven) devices.blocks.back() = devices.host;
    return devices;
  }
  const Devices& devices() const { return devices_; }
  Executor& executor() { return executor_; }

  void load() {
    store_.fill([](const ParamSource&, int64_t, const Tensor&) {});
  }

  void train(const RowsOfWindow& window) {
    std::vector<TrainInput> inputs, waiting;
    const size_t stages = stages_of(plan_).size();
    const size_t run = !options_.alike ? window.size() : stages == 1 ? 1 : stages + 1;
    for (const auto& rows : window) (inputs.size() < run ? inputs : waiting).push_back(input_of(rows));
    executor_.grads().clear();
    executor_.train(inputs);
  }

  void step() { adamw_.step(1e-3, 1.0); }

  void evaluate(const std::vector<Features>& rows) {
    TrainInput input = input_of(rows);
    executor_.forward(std::move(input.flow), input.context, input.here, input.anywhere);
  }

  void save() {
    store_.visit_full(comm_, /*root=*/0, plan_.options.compute, [](const ParamSource&, const Tensor&) {});
  }

 private:
  TrainInput input_of(const std::vector<Features>& rows) const {
    const OnDevice scope(host_);
    memory_stands_at(MemoryPhase::kForward, "the batch");
    Batch batch = collate(rows, {});
    TrainInput input{.flow = {}, .context = {.training = true, .loss_chunk = options_.loss_chunk}};
    for (const auto& [slot, value] : batch.flow.entries()) {
      const bool kept = keeps_values(slot, options_.on_cpu) || value.is_meta();
      input.flow.set(slot, kept ? value : at::empty_like(value, value.options().device(c10::kMeta)));
    }
    input.here = input.anywhere = {.rows = batch.rows > 0, .image = batch.has_image};
    return input;
  }

  const Plan& plan_;
  const RehearsalOptions& options_;
  Devices devices_;
  std::shared_ptr<DeviceMemory> host_;
  OnDevice scope_{devices_.host};
  Communicator comm_;
  ParamStore store_;
  Executor executor_;
  ShardedAdamW adamw_;
};

std::string describe(const RowsOfWindow& window) {
  int64_t rows = 0, longest = 0, media = 0;
  for (const auto& micro : window) {
    rows = std::max(rows, static_cast<int64_t>(micro.size()));
    for (const auto& row : micro) {
      longest = std::max(longest, static_cast<int64_t>(row.input_ids.size()));
      media = std::max(media, static_cast<int64_t>(row.media.size()));
    }
  }
  return fmt::format("{} micro-batch{} of {} row{} up to {} tokens{}", window.size(), window.size() == 1 ? "" : "es",
                     rows, rows == 1 ? "" : "s", longest,
                     media == 0 ? "" : fmt::format(", up to {} image{} a row", media, media == 1 ? "" : "s"));
}

DeviceForecast forecast_of(const DeviceMemory& device, const RehearsalOptions& options, size_t index) {
  return {.name = index < options.device_names.size() ? options.device_names[index] : device.name(),
          .capacity = index < options.capacities.size() ? options.capacities[index] : 0,
          .figures = device.figures()};
}

}  // namespace

MemoryForecast rehearse(const Model& model, const Plan& plan, const RowsOfWindow& window,
                        const RehearsalOptions& options) {
  Rehearsal rehearsal(model, plan, options);
  rehearsal.load();
  if (plan.options.training) {
    rehearsal.train(window);  // all state is there from the beginning: later steps need the same
    rehearsal.step();
    if (options.save) rehearsal.save();
  }
  if (options.evaluate || !plan.options.training)
    rehearsal.evaluate(options.evaluation.empty() ? window.front() : options.evaluation);
  MemoryForecast forecast;
  const Devices& devices = rehearsal.devices();
  for (size_t i = 0; i < devices.blocks.size(); ++i) {
    forecast.devices.push_back(forecast_of(*devices.blocks[i], options, i));
  }
  const bool host_computes = std::ranges::find(devices.blocks, devices.host) != devices.blocks.end();
  if (!host_computes) forecast.host = forecast_of(*devices.host, {}, 0);
  if (host_computes && forecast.devices.back().name == "host") forecast.devices.back().name = "cpu";
  forecast.batch = describe(window);
  forecast.context_bytes = options.context_bytes;
  return forecast;
}

std::vector<BlockCost> block_costs(const Model& model, const PlanOptions& plan_options, const RowsOfWindow& window,
                                   const RehearsalOptions& options) {
  PlanOptions alone = plan_options;
  alone.placement = {.offload_params = plan_options.placement.offload_params,
                     .offload_optimizer = plan_options.placement.offload_optimizer};
  const Plan plan = make_plan(model, alone);
  Rehearsal rehearsal(model, plan, options);
  const DeviceMemory& device = *rehearsal.devices().blocks.front();
  std::vector<BlockCost> costs(model.blocks.size());
  std::vector<int64_t> owner(plan.units.size(), -1);
  for (size_t b = 0; b < model.blocks.size(); ++b) costs[b].block = model.blocks[b]->name();
  for (const Step& step : plan.steps) {
    auto& cost = costs[static_cast<size_t>(step.block)];
    for (const int u : step.units) {
      const Unit& unit = plan.units[static_cast<size_t>(u)];
      const int64_t width = dtype_bytes(alone.compute), kept = plan.gathers() ? unit.shard : unit.padded;
      int64_t& block = owner[static_cast<size_t>(u)];
      if (block >= 0) {  // owned by an earlier block
        cost.tied_to = static_cast<int>(block);
        cost.tied += unit.padded * width;
        continue;
      }
      block = step.block;
      cost.state += (alone.placement.offload_params ? 0 : kept * width) + (unit.trainable ? unit.shard * 4 : 0);
      if (unit.trainable && !alone.placement.offload_optimizer)
        cost.movable += plan.optimised(unit) * (alone.compute == Dtype::kF32 ? 8 : 12);
    }
  }
  // What is alive above the state when a step begins, and the most until the next does.
  const int64_t state = device.alive_bytes();
  std::vector<int64_t> kept(plan.steps.size() + 1, 0);
  int64_t last = -1, peak = 0;
  bool on_way_back = false;
  const auto ended = [&](int64_t alive_activations) {
    peak = std::max(peak, device.figures().peak().bytes - state);
    if (last < 0) return;
    auto& cost = costs[static_cast<size_t>(plan.steps[static_cast<size_t>(last)].block)];
    int64_t before = 0;
    for (int64_t i = 0; i < last; ++i) before += std::max<int64_t>(0, kept[static_cast<size_t>(i)]);
    if (!on_way_back) {
      cost.saved = kept[static_cast<size_t>(last)] = std::max<int64_t>(0, alive_activations - before);
    }
    cost.work = std::max(cost.work, peak - before - std::max<int64_t>(0, kept[static_cast<size_t>(last)]));
  };
  rehearsal.executor().watch({.stands = [&](const Step& step, MemoryPhase phase) {
    const auto figures = device.figures();
    ended(figures.by_use[static_cast<size_t>(MemoryUse::kActivations)]);
    on_way_back = phase == MemoryPhase::kBackward;
    last = &step - plan.steps.data();
    peak = 0;
    rehearsal.devices().blocks.front()->reset_peaks();
  }});
  if (alone.training) {
    rehearsal.train({window.front()});
  } else {
    rehearsal.evaluate(window.front());
  }
  ended(device.figures().by_use[static_cast<size_t>(MemoryUse::kActivations)]);
  return costs;
}

}  // namespace lockstep
