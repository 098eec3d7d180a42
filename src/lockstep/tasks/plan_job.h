// What a job would hold and do on each rank, and what memory that needs: from config.json and options alone, before any
// weight is read and without any rank.
//
// Example:
//   const JobPlan found = plan_job({.job = {.run = {.model = "configs/Qwen2.5-VL-72B", .nproc = 8}},
//                                   .device_bytes = int64_t{80} << 30}, env);
//   std::cout << found.text();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/json.h"
#include "lockstep/session/forecast.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

struct JobPlanOptions {
  FineTuneOptions job;       // a data set is not needed: then rows are typical ones
  int world = 0;             // ranks in all; 0: those of one machine
  int64_t device_bytes = 0;  // of each GPU, for GPUs that are not here; 0: what this machine has
  int gpus = 0;              // of each machine, with device_bytes; 0: one for each local rank
  bool inference = false;    // nothing is trained

  /// Of options that contradict each other. Throws UserError(kUsage).
  void check() const;
};

struct JobPlan {
  ModelFolder folder;
  int world = 1;
  Plan plan;
  Compatibility components;
  MemoryForecast memory;
  Advice advice;
  std::string machine;               // whether this one has the memory; empty: it is about others
  std::string rows;                  // which they were: "the longest of 64 rows …"
  std::vector<std::string> notices;  // of the placement

  std::string text() const;
  Json json() const;         // as plan.json of a run
  std::string page() const;  // a picture of the memory, HTML
};

/// Those of a folder, or fresh ones; null: every weight is trained. No weights are there that say how the folder calls its modules.
/// Throws UserError.
std::shared_ptr<const AdapterLayout> planned_adapters(const FineTuneOptions& job, const Model& model);

/// `env`: what launchers and drivers have set (NPROC_PER_NODE, CUDA_VISIBLE_DEVICES, OMP_NUM_THREADS). Sets the number
/// of threads of this process's ops. Components that are refused stand in the plan: JobPlan::components.require().
/// Throws UserError.
JobPlan plan_job(const JobPlanOptions& options, const Env& env);

}  // namespace lockstep
