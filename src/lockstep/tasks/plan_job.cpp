#include "lockstep/tasks/plan_job.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/machine.h"
#include "lockstep/comm/gpus.h"
#include "lockstep/session/kept_blocks.h"
#include "lockstep/session/launch.h"
#include "lockstep/session/placement.h"
#include "lockstep/session/quantising.h"
#include "lockstep/session/room.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/watch/plan_page.h"

namespace lockstep {
namespace {

int local_ranks_of(const JobPlanOptions& options, const Env& env) {
  RunOptions run = options.job.run;
  if (run.nproc == 0 && options.world > 0) return options.world;
  if (options.device_bytes > 0) run.device = "cpu";  // GPUs that are here do not count
  return local_ranks(run, env);
}

/// The first rank of the job, as it would stand on its machine; nothing is connected.
Job first_rank(const JobPlanOptions& options, const Env& env) {
  const RunOptions& run = options.job.run;
  const bool other_gpus = options.device_bytes > 0;
  const int local = local_ranks_of(options, env);
  Job job;
  job.world = {.rank = 0, .size = options.world > 0 ? options.world : local};
  job.world.local_size = std::min(local, job.world.size);
  // A plan for GPUs needs none here.
  const bool for_gpus = other_gpus || run.device == "cuda";
  job.device = for_gpus ? GpuDriver::of_process().type + ":0" : device_of(run.device, 0);
  if (run.placement.virtual_devices > 0) {
    job.device = "cpu";
    job.num_devices = run.placement.virtual_devices;
  } else if (!job.on_cpu() && !run.placement.device_map.empty()) {
    const int gpus =
        other_gpus || options.gpus > 0 ? std::max(options.gpus, job.world.local_size) : GpuDriver::of_process().count();
    job.num_devices = std::max(1, gpus / job.world.local_size);
  }
  return job;
}

RehearsalOptions devices_of(const JobPlanOptions& options, const Job& job) {
  RehearsalOptions devices = devices_for_rehearsal(job, options.job.run.placement, options.job.train.loss_chunk);
  const Transport transport = options.job.run.transport;
  if (!options.inference) {
    devices.save = options.job.saves();
    devices.work.layout = options.job.grouping.layout();
    devices.work.noise = options.job.train.neftune_noise_alpha > 0;
    devices.label_smoothing = options.job.train.label_smoothing;
  }
  if (transport != Transport::kAuto) devices.transport = transport_name(transport);
  if (transport == Transport::kAuto && !devices.on_cpu) devices.transport = transport_name(Transport::kNccl);
  if (options.device_bytes == 0) return devices;
  for (int64_t& capacity : devices.capacities) {  // the limit, where one was given
    capacity = capacity == 0 ? options.device_bytes : std::min(capacity, options.device_bytes);
  }
  return devices;
}

/// As many as the launcher gives a rank: on the CPU, ops take working memory for each. For GPUs there is no work.
void use_threads(const Job& job, const Env& env) {
  const int share = std::max(1, usable_cores() / job.world.local_size);
  at::set_num_threads(job.on_cpu() ? asked_threads(env).value_or(share) : 1);
}

RehearsedRows longest_of(const std::vector<std::string>& dataset, const FineTuneOptions& job, const ModelFolder& folder,
                         int world) {
  const Dataset data(dataset, job.rows.dataset());
  ProcessOptions process = job.rows.process();
  if (process.truncation == Truncation::kSplit) process.truncation = Truncation::kRight;  // as long as a piece may be
  return RehearsedRows::of(data, *folder.processor(job.run.use_chat_template), process, world);
}

/// A plan measures no whole data set: its bins are made of the rows that are looked at.
RehearsedRows rows_of(const FineTuneOptions& job, const ModelFolder& folder, int world) {
  RehearsedRows rows = job.dataset.empty() ? RehearsedRows::typical(folder, job.rows.max_length)
                                           : longest_of(job.dataset, job, folder, world);
  if (!job.grouping.packing) return rows;
  return rows.in_bins(job.grouping.bin_tokens(job.rows.max_length, folder.model.dims.max_positions));
}

int64_t accumulation_of(const JobPlanOptions& options, int64_t batch, int world) {
  if (options.inference) return 1;
  FineTuneOptions job = options.job;
  job.batch.rows = batch;
  job.check_rows_of_step(world);
  return job.accumulation(world);
}

/// A batch size of auto: what is predicted to fit, where a run would try.
int64_t batch_of(const JobPlanOptions& options, const PlannedJob& job) {
  const BatchSize& batch = options.job.batch;
  if (!batch.is_auto()) return batch.rows;
  int64_t capacity = 0;
  for (const int64_t bytes : job.devices.capacities) capacity = std::max(capacity, bytes);
  if (capacity == 0) return 1;
  const auto usable = static_cast<int64_t>(batch.memory_fraction * static_cast<double>(capacity));
  const int64_t largest = job.rows.share() > 0 ? job.rows.share() : 1024;
  return search_batch_size({.limit_bytes = usable, .largest = largest},
                           [&](int64_t rows) -> std::optional<int64_t> {
                             JobShape shape = job.shape;
                             shape.batch = rows;
                             return predict_memory(job, shape).needed();
                           })
      .batch;
}

/// --gradient_checkpointing auto: within what a run would be given there.
int kept_blocks_of(const JobPlanOptions& options, const Job& job, const PlannedJob& planned,
                   std::vector<std::string>& notices) {
  if (options.job.batch.is_auto()) {
    notices.emplace_back(kBatchTakesAll);
    return 0;
  }
  int64_t bytes = 0;
  for (const int64_t capacity : planned.devices.capacities)
    bytes = std::max(bytes, capacity - planned.devices.context_bytes);
  if (bytes <= 0 && job.on_cpu()) bytes = machine_memory().available_bytes / std::max(1, job.world.local_size);
  if (bytes <= 0) {
    notices.emplace_back(
        "--gradient_checkpointing auto: --device_memory 80GiB says what there is room for; all blocks run again");
    return 0;
  }
  const auto limit = static_cast<int64_t>(options.job.batch.memory_fraction * static_cast<double>(bytes));
  const KeptBlocks found = keep_what_fits(planned, limit);
  notices.push_back(found.text());
  return found.kept;
}

/// The tables say what can be computed; whether this machine has the room is another question.
std::string said_of_machine(const JobPlanOptions& options, const Job& job, const MemoryForecast& memory) {
  if (!job.on_cpu()) {
    return options.device_bytes > 0
               ? ""
               : "this plan was not checked against a machine: --device_memory 80GiB says what its GPUs have";
  }
  const MachineRoom room = room_for(memory, true, job.world.local_size, machine_memory());
  if (room.machine.total_bytes == 0) return "this plan was not checked against a machine";
  return fmt::format("{} this machine: {}", room.fits() ? "fits" : "does not fit", room.text());
}

}  // namespace

std::shared_ptr<const AdapterLayout> planned_adapters(const FineTuneOptions& job, const Model& model) {
  const Dialect naming = naming_of_adapters(model, "");
  job.run.require_one_adapter();
  if (!job.run.adapters.empty()) {
    return std::make_shared<const AdapterLayout>(
        AdapterFolder::open(job.run.adapters.front().dir).match(model, naming).layout);
  }
  if (!job.tuner.adapts()) return nullptr;
  return std::make_shared<const AdapterLayout>(
      fresh_adapters(job.tuner, job.components, job.train.learning_rate, model, naming));
}

void JobPlanOptions::check() const {
  job.run.placement.check();
  if (device_bytes > 0 && job.run.device == "cpu") {
    throw usage_error("--device_memory is of GPUs, and --device cpu asks for none", "leave one of them out");
  }
  if (gpus > 0 && device_bytes == 0 && job.run.device != "cuda") {
    throw usage_error(fmt::format("--gpus {} is of GPUs that are not here, and nothing says what they are", gpus),
                      "--device_memory 80GiB beside it, or --device cuda");
  }
  if (world > 0 && job.run.nproc > world) {
    throw usage_error(fmt::format("--nproc {} are the ranks of one machine, and --world {} those of all: fewer",
                                  job.run.nproc, world),
                      fmt::format("--world {0}, or --nproc {1}", job.run.nproc, world));
  }
}

JobPlan plan_job(const JobPlanOptions& given, const Env& env) {
  given.check();
  const Job job = first_rank(given, env);
  JobPlanOptions options = given;
  options.job.run.placement = limits_of_tensors(job, given.job.run.placement);  // as a run has it, at the same moment
  const FineTuneOptions& sft = options.job;
  JobPlan out{.folder = ModelFolder(sft.run.place(), sft.run.without, sft.run.audio_output),
              .plan = {},
              .components = {},
              .memory = {},
              .advice = {},
              .machine = "",
              .rows = "",
              .notices = {}};
  const Model& model = out.folder.model;
  sft.components.check_against(model);
  out.world = job.world.size;
  PlanOptions wanted = sft.plan_options(out.world, sft.run.dtype.value_or(out.folder.dtype_of_config()));
  wanted.training = !options.inference;
  wanted.shared_weights = may_share_weights(job, sft.run, wanted);
  wanted.adapters = planned_adapters(sft, model);
  wanted.quantised = quantisation_for(out.folder, sft.run.quant, wanted.compute, nullptr, nullptr);
  const RehearsedRows rows = rows_of(sft, out.folder, out.world);
  out.rows = rows.source();
  use_threads(job, env);
  PlannedJob planned{model, devices_of(options, job), rows, {.options = wanted}, job.world.local_size};
  if (!sft.val_dataset.empty()) {
    planned.devices.evaluation =
        longest_of(sft.val_dataset, sft, out.folder, out.world).batches(sft.per_device_eval_batch_size);
  }
  JobShape& shape = planned.shape;
  shape.batch = batch_of(options, planned);
  shape.accumulation = accumulation_of(options, shape.batch, out.world);
  ChosenPlacement chosen =
      choose_placement(planned.devices, sft.run.placement, model, wanted, rows.step(shape.batch, shape.accumulation));
  out.notices = out.folder.config.notices();
  std::ranges::move(chosen.notices, std::back_inserter(out.notices));
  shape.options.placement = chosen.placement;
  if (sft.checkpoint_as_needed && !options.inference) {
    shape.options.kept_blocks = kept_blocks_of(options, job, planned, out.notices);
  }
  out.plan = make_plan(model, shape.options);
  out.components = compatibility(model, out.plan);
  out.memory = predict_memory(planned, shape);
  out.advice = advice_for(planned, out.memory);
  out.machine = said_of_machine(options, job, out.memory);
  return out;
}

std::string JobPlan::text() const {
  const std::string said = advice.print();
  return plan.print(folder.model) + "\n" + components.print() + "\n" + memory.print() + "  rows: " + rows + "\n" +
         (said.empty() ? "" : "\n" + said) + (machine.empty() ? "" : "\n" + machine + "\n");
}

Json JobPlan::json() const { return plan_json(plan, components, memory, advice); }

std::string JobPlan::page() const {
  const std::string name = (folder.path / "").parent_path().filename().string();
  const std::string title = fmt::format("Plan of {} for {} rank{}", name, world, world == 1 ? "" : "s");
  return plan_page(title, memory.as_json(), text());
}

}  // namespace lockstep
