// What memory a job will need, and what to change: the same for `lockstep plan` and for a run that is about to begin.
//
// Example:
//   const PlannedJob job{model, devices, rows, {.options = options, .batch = 4}};
//   const MemoryForecast memory = predict_memory(job, job.shape);
//   write(plan_json(plan, components, memory, advice_for(job, memory)));
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/exec/rehearsal.h"
#include "lockstep/plan/advice.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/session/rehearsed_rows.h"

namespace lockstep {

struct PlannedJob {
  const Model& model;
  RehearsalOptions devices;  // of one rank, and how they are rehearsed
  const RehearsedRows& rows;
  JobShape shape;
  int local_ranks = 1;  // of a machine
};

/// Of the job as it is, or with another shape. A map over several devices is made for it, and its peaks are those that
/// the map was made with.
MemoryForecast predict_memory(const PlannedJob& job, const JobShape& shape);

Advice advice_for(const PlannedJob& job, const MemoryForecast& now);

/// plan.json: options, units, steps, components, memory, advice.
Json plan_json(const Plan& plan, const Compatibility& components, const MemoryForecast& memory, const Advice& advice);

}  // namespace lockstep
