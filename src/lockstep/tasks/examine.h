// What could stop or slow a job on these machines, with what repairs it, before the job is started.
//
// Example:
//   const ExitCode code = examine({.job = {.run = {.model = "m"}}}, env, {},
//                                 {.result = [](const CheckResult& one) { std::cout << as_line(one); }});
#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/event.h"
#include "lockstep/doctor/check_report.h"
#include "lockstep/doctor/links.h"
#include "lockstep/session/job.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

struct ExamineOptions {
  FineTuneOptions job;     // its model (may be empty), ranks, rows, components and output folder
  bool inference = false;  // the job trains nothing
};

/// All that was found, by the first rank.
struct Examined {
  const CheckReport& report;
  const std::vector<Link>& links;  // between pairs of ranks
};

/// Called on the first rank; `finished` once, possibly by the thread of the roll call when the ranks cannot meet.
struct ExamineSinks {
  std::function<void(const CheckResult&)> result;
  std::function<void(const Progress&)> progress;
  std::function<void(const Examined&)> finished;
};

/// Runs on every rank, which it connects by itself. No check stops another. Returns the code of the first failure, the
/// same on every rank; throws what keeps the ranks from meeting, by then told as a failure too.
ExitCode examine(const ExamineOptions& options, const Env& env, const JobOptions& job, const ExamineSinks& sinks);

}  // namespace lockstep
