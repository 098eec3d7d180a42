#include "lockstep/cli/plan_verb.h"

#include <algorithm>
#include <iostream>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/gpus.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/plan_flags.h"
#include "lockstep/cli/prediction.h"
#include "lockstep/cli/session.h"
#include "lockstep/watch/plan_page.h"

namespace lockstep {
namespace {

int local_ranks_of(const PlanFlags& flags, const Env& env) {
  RunFlags run = flags.sft.run;
  if (run.nproc == 0 && flags.world > 0) return flags.world;
  if (flags.device_bytes() > 0) run.device = "cpu";  // GPUs that are here do not count
  return local_ranks(run, env);
}

/// The first rank of the job, as it would stand on its machine; nothing is connected.
Job first_rank(const PlanFlags& flags, const Env& env) {
  const RunFlags& run = flags.sft.run;
  const bool other_gpus = flags.device_bytes() > 0;
  const int local = local_ranks_of(flags, env);
  Job job;
  job.world = {.rank = 0, .size = flags.world > 0 ? flags.world : local};
  job.world.local_size = std::min(local, job.world.size);
  job.device = other_gpus || run.device == "cuda" ? "cuda:0" : device_of(run.device, 0, env);
  if (run.placement.virtual_devices > 0) {
    job.device = "cpu";
    job.num_devices = run.placement.virtual_devices;
  } else if (job.device != "cpu" && !run.placement.device_map.empty()) {
    const int gpus = other_gpus || flags.gpus > 0 ? std::max(flags.gpus, job.world.local_size) : visible_gpus(env);
    job.num_devices = std::max(1, gpus / job.world.local_size);
  }
  return job;
}

RehearsalOptions scene_of(const PlanFlags& flags, const Job& job) {
  RehearsalOptions scene = rehearsal_scene(job, flags.sft.run, flags.sft.train.loss_chunk);
  const std::string& transport = flags.sft.run.transport;
  if (transport != "auto") scene.transport = transport;
  if (transport == "auto" && !scene.on_cpu) scene.transport = "nccl";
  if (flags.device_bytes() == 0) return scene;
  for (int64_t& capacity : scene.capacities) {  // --memory_limit, where it was given
    capacity = capacity == 0 ? flags.device_bytes() : std::min(capacity, flags.device_bytes());
  }
  return scene;
}

/// As many as the launcher gives a rank: on the CPU, ops take working memory for each. For GPUs there is no work.
void use_threads(const Job& job, const Env& env) {
  const int share = std::max(1, usable_cores() / job.world.local_size);
  at::set_num_threads(job.device == "cpu" ? static_cast<int>(env.integer("OMP_NUM_THREADS").value_or(share)) : 1);
}

RehearsedRows rows_of(const PlanFlags& flags, const ModelFolder& folder, int world, const Env& env) {
  RowFlags rows = flags.sft.rows;
  read_media_environment(env, rows.media);
  if (flags.sft.dataset.empty()) return RehearsedRows::typical(folder, rows.max_length);
  const Dataset data(flags.sft.dataset, rows.dataset(env));
  return RehearsedRows::of(data, *folder.processor(), rows.process(), world);
}

/// The longest rows of an evaluation; empty without --val_dataset.
std::vector<Features> evaluated_rows(const PlanFlags& flags, const ModelFolder& folder, int world, const Env& env) {
  if (flags.sft.val_dataset.empty()) return {};
  RowFlags rows = flags.sft.rows;
  read_media_environment(env, rows.media);
  const Dataset data(flags.sft.val_dataset, rows.dataset(env));
  return RehearsedRows::of(data, *folder.processor(), rows.process(), world)
      .window(flags.sft.per_device_eval_batch_size, 1)
      .front();
}

int64_t accumulation_of(const PlanFlags& flags, int64_t batch, int world) {
  SftFlags sft = flags.sft;
  sft.batch.size = batch;
  return flags.inference ? 1 : sft.accumulation(world);
}

/// --per_device_train_batch_size auto: what is predicted to fit, where a run would try.
int64_t batch_of(const PlanFlags& flags, const PlannedJob& job) {
  if (flags.sft.batch.size != kAutoBatch) return flags.sft.batch.size;
  int64_t capacity = 0;
  for (const int64_t bytes : job.scene.capacities) capacity = std::max(capacity, bytes);
  if (capacity == 0) return 1;
  const auto usable = static_cast<int64_t>(flags.sft.batch.memory_fraction * static_cast<double>(capacity));
  const int64_t largest = job.rows.most() > 0 ? job.rows.most() : 1024;
  return search_batch_size({.limit_bytes = usable, .largest = largest},
                           [&](int64_t batch) -> std::optional<int64_t> {
                             JobShape shape = job.shape;
                             shape.batch = batch;
                             const MemoryForecast forecast = predict_memory(job, shape);
                             return forecast.peak() + forecast.context_bytes;
                           })
      .batch;
}

std::string text_of(const Model& model, const Plan& plan, const Compatibility& components, const MemoryForecast& memory,
                    const Advice& advice, const RehearsedRows& rows) {
  const std::string said = advice.print();
  return plan.print(model) + "\n" + components.print() + "\n" + memory.print() + "  rows: " + rows.source() + "\n" +
         (said.empty() ? "" : "\n" + said);
}

}  // namespace

const char* const plan_summary =
    "say what each rank would hold and do, and what memory that needs, before any weight is loaded";

int run_plan(const std::vector<std::string>& args, const Env& env) {
  const auto parsed = parse_plan_flags(args);
  if (!parsed) return 0;
  const PlanFlags& flags = *parsed;
  const RunFlags& run = flags.sft.run;
  for (const auto& text : flags.sft.notices) std::cerr << "note: " << text << "\n";
  const ModelFolder folder(run.model, run.without());
  flags.sft.components.check_against(folder.model);
  const Job job = first_rank(flags, env);
  const int world = job.world.size;
  PlanOptions options = flags.sft.plan_options(world, run.dtype().value_or(folder.dtype_of_config()));
  options.training = !flags.inference;
  const RehearsedRows rows = rows_of(flags, folder, world, env);
  use_threads(job, env);
  PlannedJob planned{folder.model, scene_of(flags, job), rows, {.options = options}, job.world.local_size};
  planned.scene.evaluation = evaluated_rows(flags, folder, world, env);
  JobShape& shape = planned.shape;
  shape.batch = batch_of(flags, planned);
  shape.accumulation = accumulation_of(flags, shape.batch, world);
  const ChosenPlacement chosen = choose_placement(planned.scene, run, folder.model, options,
                                                  [&] { return rows.window(shape.batch, shape.accumulation); });
  for (const auto& text : chosen.notices) std::cerr << "note: " << text << "\n";
  shape.options.placement = chosen.placement;

  const Plan plan = make_plan(folder.model, shape.options);
  const Compatibility components = compatibility(folder.model, plan);
  const MemoryForecast memory = predict_memory(planned, shape);
  const Advice advice = advice_for(planned, memory);
  const std::string text = text_of(folder.model, plan, components, memory, advice, rows);
  std::cout << (flags.json ? plan_json(plan, components, memory, advice).dump(1) + "\n" : text);
  if (!flags.report.empty()) {
    const std::string name = (folder.path / "").parent_path().filename().string();
    const std::string title = fmt::format("Plan of {} for {} rank{}", name, world, world == 1 ? "" : "s");
    write_text(flags.report, plan_page(title, memory.as_json(), text));
  }
  components.require();
  return 0;
}

}  // namespace lockstep
