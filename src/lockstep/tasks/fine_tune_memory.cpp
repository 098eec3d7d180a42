// What a training run says of its memory before it begins, and whether it keeps to a limit.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/doctor/machine_facts.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/session/forecast.h"
#include "lockstep/session/kept_blocks.h"
#include "lockstep/session/placement.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/session/room.h"
#include "lockstep/tasks/fine_tune_run.h"

namespace lockstep {

/// What memory is predicted for, and blocks are placed for.
const RehearsedRows& FineTuneRun::planned_rows() {
  if (!longest_) {
    constexpr size_t kBins = 8;  // of each kind; a batch takes these again where it is larger
    const Processor& processor = session_->processor();
    const ProcessOptions process = options_.rows.process();
    longest_ = grouped_.bins ? RehearsedRows::of_bins(*train_rows_, processor, process, job_.world.size,
                                                      grouped_.heaviest_bins(kBins), std::ssize(*grouped_.bins))
                             : RehearsedRows::of(*train_rows_, processor, process, job_.world.size);
    planned_.batch = options_.batch.is_auto() ? 1 : options_.batch.rows;
    planned_.accumulation = options_.accumulation(job_.world.size);
  }
  return *longest_;
}

/// How the devices of this rank are rehearsed, evaluation with the longest rows that it has.
RehearsalOptions FineTuneRun::rehearsed_devices() const {
  RehearsalOptions devices = devices_for_rehearsal(job_, session_->options().placement, options_.train.loss_chunk);
  devices.evaluation = longest_evaluated_;
  devices.save = options_.saves();
  devices.work.layout = options_.grouping.layout();
  devices.work.noise = options_.train.neftune_noise_alpha > 0;
  devices.label_smoothing = options_.train.label_smoothing;
  devices.waiting_bytes = longest_ ? longest_->waiting_bytes(planned_.batch) : waiting_bytes_;
  return devices;
}

/// --gradient_checkpointing auto.
void FineTuneRun::choose_kept_blocks() {
  if (!options_.checkpoint_as_needed) return;
  if (options_.batch.is_auto()) return notice(kBatchTakesAll);
  const int64_t limit = agree_limit(job_, options_.batch.memory_fraction);
  KeptBlocks found;
  together(job_.control(), "choosing what is kept for the way back", [&] {
    if (!job_.reports()) return;
    planned_rows();  // which planned_job() takes as they are
    found = keep_what_fits(planned_job(), limit);
    notice(found.text());
  });
  const std::string kept = from_rank_0(job_.control(), std::to_string(found.kept), "blocks that keep what they made");
  session_->keep_blocks(std::stoi(kept));
}

void FineTuneRun::predict() {
  together(job_.control(), "predicting memory", [&] {
    if (!job_.reports()) return;
    const auto steps = planned_rows().steps(planned_.batch, planned_.accumulation);
    if (val_rows_ && longest_evaluated_.empty()) {
      longest_evaluated_ =
          RehearsedRows::of(*val_rows_, session_->processor(), options_.rows.process(), job_.world.size)
              .batches(options_.per_device_eval_batch_size);
    }
    forecast_ = rehearse(session_->model(), session_->plan(), steps, rehearsed_devices());
  });
  // By which every rank judges its batches: rows that one refuses none may take.
  const int64_t waiting = longest_ ? longest_->waiting_bytes(planned_.batch) : 0;
  waiting_bytes_ = std::stoll(from_rank_0(job_.control(), std::to_string(waiting), "bytes of rows that wait"));
}

/// Of a step's passes and update, on the rank that plans. Stages of a pipeline have several micro-batches under way.
int64_t FineTuneRun::foreseen_peak(int64_t batch) {
  RehearsalOptions devices = rehearsed_devices();
  devices.save = devices.evaluate = false;
  const auto micro_batches = static_cast<int64_t>(stages_of(session_->plan()).size()) + 1;
  return rehearse(session_->model(), session_->plan(), planned_rows().steps(batch, micro_batches), devices).peak();
}

/// Whether rows fit in what --memory_limit leaves; nobody is asked without a limit.
Admission::Fits FineTuneRun::admission() const {
  if (!options_.run.placement.limited()) return {};
  RehearsalOptions in_steps = rehearsed_devices();
  in_steps.save = in_steps.evaluate = false;
  // Parts of a batch are micro-batches too: a pipeline may have as many under way as it has stages.
  const size_t waiting =
      std::max(static_cast<size_t>(options_.accumulation(job_.world.size)), stages_of(session_->plan()).size() + 1);
  return [this, in_steps, waiting](const auto& rows) {
    return rehearse(session_->model(), session_->plan(), RowsOfStep(waiting, rows), in_steps).fits();
  };
}

/// Batches of an evaluation are not split.
bool FineTuneRun::fits_in_evaluation(const MemoryForecast& forecast) {
  return std::ranges::all_of(forecast.devices, [](const DeviceForecast& device) {
    return device.capacity == 0 ||
           device.figures.phases.at(static_cast<size_t>(MemoryPhase::kEvaluate)).bytes <= device.capacity;
  });
}

/// A job that no split of its batches makes fit is refused before anything is loaded.
void FineTuneRun::check_fits() {
  std::string split;
  together(job_.control(), "comparing memory with its limit", [&] {
    const MemoryForecast& forecast = forecast_;
    if (!job_.reports() || forecast.fits()) return;
    if (val_rows_ && !fits_in_evaluation(forecast)) {
      throw UserError(
          ExitCode::kMemory,
          fmt::format("--memory_limit {}: an evaluation with --per_device_eval_batch_size {} does not fit:\n{}",
                      format_bytes(options_.run.placement.memory_limit), options_.per_device_eval_batch_size,
                      forecast.print()),
          "a smaller --per_device_eval_batch_size");
    }
    const std::vector<Features> rows = longest_->looked_at();
    Admission alone(admission());
    const auto too_long = static_cast<size_t>(std::count_if(
        rows.begin(), rows.end(), [&](const Features& row) { return !alone.admit({row}).refused.empty(); }));
    if (too_long < rows.size() && (too_long == 0 || !options_.rows.strict)) {
      split = fmt::format("{} would need {} of {}: such batches are run in parts", forecast.batch,
                          format_bytes(forecast.peak()), format_bytes(options_.run.placement.memory_limit));
      if (too_long > 0) split += fmt::format("; {} of {} rows do not fit alone and are skipped", too_long, rows.size());
      return;
    }
    throw UserError(
        ExitCode::kMemory,
        fmt::format("--memory_limit {}: {} of the {} rows that were looked at do not fit, one by one; with "
                    "batches as asked:\n{}",
                    format_bytes(options_.run.placement.memory_limit), too_long, rows.size(), forecast.print()),
        "`lockstep plan` with the same flags shows the cheapest changes that make it fit");
  });
  if (!split.empty()) notice(split);
}

namespace {

/// Whether its checkpoints hold what the model borrows of another folder.
bool saves_whole(const Session& session) {
  return saves_borrowed({session.model(), session.weights(), session.keys()}, session.plan());
}

}  // namespace

/// What travels with every checkpoint.
void FineTuneRun::read_side_files() {
  std::string large;
  together(job_.control(), "reading the model's files", [&] {
    if (!job_.reports()) return;
    const ModelFolder& folder = session_->folder();  // an adapter's base keeps its files
    side_files_ = session_->adapters() ? folder.adapter_side_files() : folder.side_files(saves_whole(*session_));
    if (options_.save_strategy != "no") large = large_side_files(side_files_);
  });
  if (!large.empty()) notice(large);
}

/// Memory and disk of the first machine: one that gives out in the middle of loading takes others with it.
void FineTuneRun::check_machine() {
  read_side_files();
  std::string tight;
  together(job_.control(), "comparing memory and disk with the machine's", [&] {
    if (!job_.reports() || options_.run.force) return;
    require_room(planned_job(), forecast_, room_for(forecast_, job_.on_cpu(), job_.world.local_size, machine_memory()));
    if (!job_.on_cpu()) require_gpu_room(forecast_, gpu_memory);
    if (options_.save_strategy == "no") return;
    const Weights& weights = session_->weights();
    const int64_t of_model = weights.total_bytes() - (saves_whole(*session_) ? 0 : weights.borrowed_bytes());
    const int64_t saved = session_->adapters() ? session_->plan().num_trainable() * dtype_bytes(Dtype::kF32) : of_model;
    const int64_t bytes =
        checkpoint_bytes(session_->plan(), saved + side_file_bytes(side_files_), options_.save_only_model);
    const CheckResult disk = judge_disk(disk_facts(folder_.dir.string(), bytes));
    if (disk.level == Level::kFailure) {
      throw UserError(disk.code, "--output_dir: " + disk.text, disk.cure + "; --force true goes on all the same");
    }
    if (disk.level == Level::kWarning && options_.save_total_limit != 1) tight = disk.text + "; " + disk.cure;
  });
  if (!tight.empty()) notice(tight);
}

PlannedJob FineTuneRun::planned_job() const {
  PlannedJob job{session_->model(), rehearsed_devices(), *longest_, planned_, job_.world.local_size};
  job.shape.options = session_->plan().options;
  return job;
}

Json FineTuneRun::whole_plan() const {
  const Plan& plan = session_->plan();
  const PlannedJob job = planned_job();
  return plan_json(plan, compatibility(session_->model(), plan), forecast_, advice_for(job, forecast_));
}

}  // namespace lockstep
