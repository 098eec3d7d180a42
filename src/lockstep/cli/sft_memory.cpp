// What a training run says of its memory before it begins, and whether it keeps to a limit.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/cli/prediction.h"
#include "lockstep/cli/rehearsed_rows.h"
#include "lockstep/cli/sft_run.h"
#include "lockstep/comm/together.h"
#include "lockstep/plan/compatibility.h"

namespace lockstep {

/// The longest rows at once: what memory is predicted for.
RowsOfWindow SftRun::planned_rows(const Processor& processor) {
  if (!longest_) {
    longest_ = RehearsedRows::of(*train_rows_, processor, flags_.rows.process(), job_.world.size);
    planned_.batch = flags_.batch.size == kAutoBatch ? 1 : flags_.batch.size;
    planned_.accumulation = flags_.accumulation(job_.world.size);
  }
  return longest_->window(planned_.batch, planned_.accumulation);
}

/// How the devices of this rank are rehearsed, evaluation with the longest rows that it has.
RehearsalOptions SftRun::scene() const {
  RehearsalOptions scene = rehearsal_scene(job_, flags_.run, flags_.train.loss_chunk);
  scene.evaluation = longest_evaluated_;
  return scene;
}

void SftRun::predict() {
  together(job_.control(), "predicting memory", [&] {
    if (!job_.reports()) return;
    const RowsOfWindow window = planned_rows(session_->processor());
    if (val_rows_ && longest_evaluated_.empty()) {
      longest_evaluated_ = RehearsedRows::of(*val_rows_, session_->processor(), flags_.rows.process(), job_.world.size)
                               .window(flags_.per_device_eval_batch_size, 1)
                               .front();
    }
    session_->set_forecast(rehearse(session_->model(), session_->plan(), window, scene()));
  });
}

/// Whether rows fit in what --memory_limit leaves; nobody is asked without a limit.
Admission::Fits SftRun::admission() const {
  if (flags_.run.placement.memory_limit.empty()) return {};
  RehearsalOptions in_steps = scene();
  in_steps.save = in_steps.evaluate = false;
  // Parts of a batch are micro-batches too: a pipeline may have as many under way as it has stages.
  const size_t waiting =
      std::max(static_cast<size_t>(flags_.accumulation(job_.world.size)), stages_of(session_->plan()).size() + 1);
  return [this, in_steps, waiting](const auto& rows) {
    return rehearse(session_->model(), session_->plan(), RowsOfWindow(waiting, rows), in_steps).fits();
  };
}

/// Batches of an evaluation are not split.
bool SftRun::fits_in_evaluation(const MemoryForecast& forecast) {
  return std::ranges::all_of(forecast.devices, [](const DeviceForecast& device) {
    return device.capacity == 0 ||
           device.figures.phases.at(static_cast<size_t>(MemoryPhase::kEvaluate)).bytes <= device.capacity;
  });
}

/// A job that no split of its batches makes fit is refused before anything is loaded.
void SftRun::check_fits() {
  std::string split;
  together(job_.control(), "comparing memory with its limit", [&] {
    const MemoryForecast& forecast = session_->forecast();
    if (!job_.reports() || forecast.fits()) return;
    if (val_rows_ && !fits_in_evaluation(forecast)) {
      throw UserError(
          ExitCode::kMemory,
          fmt::format("--memory_limit {}: an evaluation with --per_device_eval_batch_size {} does not fit:\n{}",
                      flags_.run.placement.memory_limit, flags_.per_device_eval_batch_size, forecast.print()),
          "a smaller --per_device_eval_batch_size");
    }
    const std::vector<Features>& rows = longest_->looked_at();
    Admission alone(admission());
    const auto too_long = static_cast<size_t>(std::count_if(
        rows.begin(), rows.end(), [&](const Features& row) { return !alone.admit({row}).refused.empty(); }));
    if (too_long < rows.size() && (too_long == 0 || !flags_.rows.strict)) {
      split = fmt::format("{} would need {} of {}: such batches are run in parts", forecast.batch,
                          format_bytes(forecast.peak()), format_bytes(flags_.run.placement.limit()));
      if (too_long > 0) split += fmt::format("; {} of {} rows do not fit alone and are skipped", too_long, rows.size());
      return;
    }
    throw UserError(ExitCode::kMemory,
                    fmt::format("--memory_limit {}: {} of the {} rows that were looked at do not fit, one by one; with "
                                "batches as asked:\n{}",
                                flags_.run.placement.memory_limit, too_long, rows.size(), forecast.print()),
                    "`lockstep plan` with the same flags shows the cheapest changes that make it fit");
  });
  if (!split.empty()) notice(split);
}

Json SftRun::whole_plan() const {
  const Plan& plan = session_->plan();
  PlannedJob job{session_->model(), scene(), *longest_, planned_, job_.world.local_size};
  job.shape.options = plan.options;
  const MemoryForecast& memory = session_->forecast();
  return plan_json(plan, compatibility(session_->model(), plan), memory, advice_for(job, memory));
}

}  // namespace lockstep
