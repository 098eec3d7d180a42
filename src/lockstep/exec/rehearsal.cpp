#include "lockstep/exec/rehearsal.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/exec/cost_meter.h"
#include "lockstep/exec/executor.h"
#include "lockstep/exec/prompt_pieces.h"
#include "lockstep/exec/rehearsal_backend.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/hollow_ops.h"
#include "lockstep/tensor/libtorch_allocators.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

/// What a run takes beside tensors and rows that wait: texts of the model's folder, stacks of the loader's threads, holes between
/// tensors. Measured as 1 to 14 MiB by family and shape (bench/resident_memory.cpp), which is nothing beside a model that people
/// train.
constexpr int64_t kBesideTensors = int64_t{8} << 20;

/// Small tensors that blocks read with the host's eyes keep their values: where media lie, and which labels count.
bool keeps_values(const std::string& slot) {
  if (slot.starts_with("speech_")) return slot.ends_with("row_ends");
  return !(slot == "input_ids" || slot == "positions" || slot.ends_with("_values") || slot.ends_with("_index"));
}

class Rehearsal {
 public:
  Rehearsal(const Model& model, const Plan& plan, const RehearsalOptions& options)
      : model_(model),
        plan_(plan),
        options_(options),
        devices_(make_devices(plan, options)),
        host_(devices_.host),
        transport_(make_rehearsal_backend(plan.options.world, options.transport)),
        beside_(*transport_),
        comm_(World{.rank = 0, .size = plan.options.world, .local_size = plan.options.world}, std::move(transport_)),
        store_(plan, /*rank=*/0, devices_),
        executor_(model, plan, store_, comm_),
        adamw_(store_, comm_, {}) {}

  static Devices make_devices(const Plan& plan, const RehearsalOptions& options) {
    Devices devices = Devices::rehearsed(
        plan.options.placement.num_devices,
        {.rounding = options.on_cpu ? 64 : kGpuRounding, .row_kernels = options.on_cpu}, options.host_is_device());
    // Blocks on "cpu" stand on a device behind those that the rank drives: the host.
    const size_t driven = options.device_names.size();
    if (driven > 0 && devices.blocks.size() > driven) devices.blocks.back() = devices.host;
    return devices;
  }
  const Devices& devices() const { return devices_; }
  /// So far, of the device that needs most.
  int64_t peak() const {
    int64_t most = devices_.host->figures().peak().bytes;
    for (const auto& device : devices_.blocks) most = std::max(most, device->figures().peak().bytes);
    return most;
  }
  int64_t bytes_beside() const { return beside_.bytes_beside(); }
  Executor& executor() { return executor_; }

  void load() {
    store_.fill([](const ParamSource&, int64_t, const Tensor&) {});
  }

  void train(const RowsOfStep& window) {
    std::vector<TrainInput> inputs, waiting;
    const size_t stages = stages_of(plan_).size();
    const size_t run = !options_.alike ? window.size() : stages == 1 ? 1 : stages + 1;
    for (const auto& rows : window) (inputs.size() < run ? inputs : waiting).push_back(input_of(rows));
    executor_.grads().clear();
    executor_.train(inputs);
    if (options_.alike) beside_.phase_ends();  // those that only wait come again, as often as they are
  }

  void step() {
    adamw_.step(1e-3, 1.0);
    beside_.phase_ends();
  }

  void evaluate(const std::vector<Features>& rows) {
    TrainInput input = input_of(rows);
    executor_.forward(std::move(input.flow), input.context, input.here, input.anywhere);
    beside_.phase_ends();
  }

  /// All passes of a run that trains nothing. `next_pass` is called before each of them.
  template <typename NextPass>
  void infer(const std::vector<Features>& rows, const NextPass& next_pass) {
    const RowWork& work = options_.work;
    const bool labelled = std::ranges::any_of(rows, [](const Features& row) { return !row.labels.empty(); });
    if (labelled || work.answer_tokens == 0) {
      next_pass();
      evaluate(rows);
    }
    if (work.answer_tokens == 0) return;
    next_pass();
    answer(rows);
    if (work.codes == 0 || !model_.speech) return;
    next_pass();
    say(rows);
  }

  void save() {
    store_.visit_full(comm_, /*root=*/0, plan_.options.compute, [](const ParamSource&, const Tensor&) {});
    beside_.phase_ends();
  }

 private:
  /// Every row is a prompt whose keys and values stay, with room for a whole answer behind them.
  void answer(const std::vector<Features>& rows) {
    KvCache cache(model_.dims.layers, static_cast<int64_t>(rows.size()));
    int64_t next = 0;
    std::vector<SubBatch> parts;
    Modalities anywhere = Modality::kText;
    for (const Features& row : rows) {
      Features prompt = row;
      prompt.labels.clear();
      const int64_t slot = next++;
      const auto tokens = static_cast<int64_t>(row.input_ids.size());
      cache.open(slot, tokens + options_.work.answer_tokens);
      TrainInput input = input_of({std::move(prompt)});
      anywhere |= input.here;
      const Context context{
          .logits = LogitsWanted::kLast, .cache = &cache, .adapter_rows = input.context.adapter_rows, .slot = slot};
      const OnDevice scope(host_);
      std::ranges::move(pieces_of(input.flow, context, input.here, piece_ends(tokens, media_end(row))),
                        std::back_inserter(parts));
    }
    executor_.forward(parts, anywhere);
    beside_.phase_ends();
  }

  /// Every row with its answer is read once more, and the talker's keys and values stay.
  void say(const std::vector<Features>& rows) {
    const std::vector<int32_t> answer(static_cast<size_t>(options_.work.answer_tokens), 0);
    KvCache cache(model_.speech->layers, static_cast<int64_t>(rows.size()));
    std::vector<SubBatch> parts;
    Modalities anywhere;
    for (const Features& row : rows) {
      const size_t begin = row.input_ids.size();
      Features said = with_answer(row, answer);
      said.speech = speech_prompt(said, {.begin = begin, .end = begin + answer.size()}, "", {.speakers = {{"", 0}}});
      const auto slot = static_cast<int64_t>(parts.size());
      cache.open(slot, static_cast<int64_t>(said.speech->text.size()) + options_.work.codes);
      TrainInput input = input_of({std::move(said)});
      anywhere |= input.here;
      parts.push_back({.flow = std::move(input.flow),
                       .context = {.logits = LogitsWanted::kLast, .speech_cache = &cache, .slot = slot},
                       .modalities = input.here});
    }
    executor_.forward(parts, anywhere);
    beside_.phase_ends();
  }

  TrainInput input_of(const std::vector<Features>& rows) const {
    const OnDevice scope(host_);
    memory_stands_at(MemoryPhase::kForward, "the batch");
    Batch batch = collate(rows, {.layout = options_.work.layout});
    TrainInput input{
        .flow = {},
        .context = {.training = true, .loss_chunk = options_.loss_chunk, .label_smoothing = options_.label_smoothing}};
    for (const auto& [slot, value] : batch.flow.entries()) {
      const bool kept = keeps_values(slot) || value.is_meta();
      input.flow.set(slot, kept ? value : at::empty_like(value, value.options().device(c10::kMeta)));
    }
    if (!plan_.options.further_adapters.empty()) input.context.adapter_rows = AdapterRows{.adapters = {0}, .rows = {}};
    if (plan_.drops()) {
      input.context.dropout_keys.assign(rows.size(), 0);
      input.context.row_ends = batch.row_ends;
    }
    if (plan_.options.training && options_.work.noise) input.context.noise = {1.0, {}, batch.lengths};
    input.here = input.anywhere = batch.modalities;
    return input;
  }

  const Model& model_;
  const Plan& plan_;
  const RehearsalOptions& options_;
  Devices devices_;
  std::shared_ptr<DeviceMemory> host_;
  std::unique_ptr<HollowOps> ops_ = shares_process() ? std::make_unique<HollowOps>() : nullptr;
  OnDevice scope_{devices_.host};
  std::unique_ptr<RehearsalBackend> transport_;  // until the communicator has it
  RehearsalBackend& beside_;
  Communicator comm_;
  ParamStore store_;
  Executor executor_;
  ShardedAdamW adamw_;
};

std::string describe(const RowsOfStep& window) {
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

const std::vector<Features>& first_batch(const RowsOfStep& step) { return step.front(); }

DeviceForecast forecast_of(const DeviceMemory& device, const RehearsalOptions& options, size_t index) {
  return {.name = index < options.device_names.size() ? options.device_names[index] : device.name(),
          .capacity = index < options.capacities.size() ? options.capacities[index] : 0,
          .figures = device.figures()};
}

}  // namespace

MemoryForecast rehearse(const Model& model, const Plan& plan, const RowsOfStep& window,
                        const RehearsalOptions& options) {
  return rehearse(model, plan, std::vector<RowsOfStep>{window}, options);
}

MemoryForecast rehearse(const Model& model, const Plan& plan, const std::vector<RowsOfStep>& steps,
                        const RehearsalOptions& options) {
  Rehearsal rehearsal(model, plan, options);
  rehearsal.load();
  MemoryForecast forecast;
  int64_t most = 0;
  const auto has_run = [&](const RowsOfStep& step) {
    if (rehearsal.peak() <= most) return;
    most = rehearsal.peak();
    forecast.batch = describe(step);
  };
  if (plan.options.training) {
    for (const RowsOfStep& step : steps) {
      rehearsal.train(step);  // all state is there from the beginning: later steps need the same
      has_run(step);
      rehearsal.step();
    }
    if (options.save) rehearsal.save();
  }
  RowsOfStep evaluated = options.evaluation;
  if (evaluated.empty()) std::ranges::transform(steps, std::back_inserter(evaluated), &first_batch);
  for (const auto& rows : evaluated) {
    if (!plan.options.training) {
      rehearsal.infer(rows, [] {});
      has_run({rows});
    } else if (options.evaluate) {
      rehearsal.evaluate(rows);
    }
  }
  const Devices& devices = rehearsal.devices();
  for (size_t i = 0; i < devices.blocks.size(); ++i) {
    forecast.devices.push_back(forecast_of(*devices.blocks[i], options, i));
  }
  const bool host_computes = std::ranges::find(devices.blocks, devices.host) != devices.blocks.end();
  if (!host_computes) forecast.host = forecast_of(*devices.host, {}, 0);
  if (host_computes && forecast.devices.back().name == "host") forecast.devices.back().name = "cpu";
  if (options.host_is_device()) {
    forecast.process_bytes = rehearsal.bytes_beside() + kBesideTensors + bytes_of_made_products(plan.options.compute);
    forecast.devices.front().figures.most_held += forecast.process_bytes + options.waiting_bytes;
  }
  forecast.context_bytes = options.context_bytes;
  forecast.waiting_bytes = options.waiting_bytes;
  return forecast;
}

namespace {

/// Of the plan alone: what stays, what may stand elsewhere, what is read of others.
std::vector<BlockCost> costs_of_state(const Model& model, const Plan& plan) {
  const PlanOptions& options = plan.options;
  std::vector<BlockCost> costs(model.blocks.size());
  std::vector<int> owner(plan.units.size(), -1);
  for (const Step& step : plan.steps) {
    BlockCost& cost = costs[static_cast<size_t>(step.block)];
    cost.block = model.blocks[static_cast<size_t>(step.block)]->name();
    for (const int u : step.units) {
      const Unit& unit = plan.units[static_cast<size_t>(u)];
      const int64_t width = dtype_bytes(unit.kept_dtype()), optimizer_width = unit.dtype == Dtype::kF32 ? 8 : 12;
      int& owned_by = owner[static_cast<size_t>(u)];
      if (owned_by >= 0) {
        cost.tied_to = owned_by;
        cost.tied += unit.padded * dtype_bytes(unit.dtype);
        continue;
      }
      owned_by = step.block;
      const int64_t kept = plan.keeps_shard() ? unit.kept_shard() : unit.kept_padded();
      if (!options.placement.offload_params) cost.state += kept * width;
      if (!unit.trainable) continue;
      cost.state += unit.shard * 4;
      if (!options.placement.offload_optimizer) cost.movable += plan.optimised(unit) * optimizer_width;
    }
  }
  return costs;
}

}  // namespace

std::vector<BlockCost> block_costs(const Model& model, const PlanOptions& plan_options, const RowsOfStep& window,
                                   const RehearsalOptions& options) {
  return block_costs(model, plan_options, std::vector<RowsOfStep>{window}, options);
}

std::vector<BlockCost> block_costs(const Model& model, const PlanOptions& plan_options,
                                   const std::vector<RowsOfStep>& steps, const RehearsalOptions& options) {
  PlanOptions alone = plan_options;
  alone.placement = {.offload_params = plan_options.placement.offload_params,
                     .offload_optimizer = plan_options.placement.offload_optimizer};
  const Plan plan = make_plan(model, alone);
  std::vector<BlockCost> costs = costs_of_state(model, plan);
  Rehearsal rehearsal(model, plan, options);
  CostMeter meter(model, plan, *rehearsal.devices().blocks.front(), costs);
  rehearsal.executor().watch(meter.hooks());
  for (const RowsOfStep& step : steps) {
    if (alone.training) {
      meter.next_pass();
      rehearsal.train({step.front()});
    } else {
      rehearsal.infer(step.front(), [&] { meter.next_pass(); });
    }
  }
  meter.next_pass();
  return costs;
}

}  // namespace lockstep
