#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/together.h"
#include "lockstep/state/checkpoint_names.h"
#include "lockstep/tasks/fine_tune_run.h"
#include "lockstep/tasks/part_alone.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {
namespace fs = std::filesystem;

/// One that kept its name would be taken for a checkpoint of this run.
void FineTuneRun::remove_overwritten() {
  for (const auto& path : folder_.overwritten) {
    const std::string left = remove_checkpoint(path);
    if (left.empty()) continue;
    if (fs::exists(path)) {
      throw usage_error("--overwrite_output_dir true: " + left, "remove it, or name another --output_dir");
    }
    notice(left);
  }
}

/// Where more is evaluated than saved.
void FineTuneRun::tell_unsaved_best() const {
  const TrainerState& state = trainer_->state();
  if (!state.best_metric || state.best_saved_metric == state.best_metric) return;
  const std::string& saved = state.best_model_checkpoint;
  notice(fmt::format(
      "the best evaluation, {:g} at step {}, has no checkpoint; {}", *state.best_metric, state.best_global_step,
      saved.empty() ? "nor has any other"
                    : fmt::format("the best that has one is {} ({:g})", saved, *state.best_saved_metric)));
}

CheckpointSaved FineTuneRun::save(const TrainerState& state) {
  std::optional<AdapterFiles> adapters;
  if (session_->adapters()) adapters.emplace(session_->adapter_files());
  CheckpointSaved saved =
      save_checkpoint({*source_, side_files_, args_kept_, session_->store(), state, adapters ? &*adapters : nullptr},
                      {.output_dir = folder_.dir,
                       .save_only_model = options_.save_only_model,
                       .save_total_limit = options_.save_total_limit,
                       .max_shard_bytes = options_.max_shard_bytes,
                       .damaged = folder_.damaged},
                      job_.data(), job_.control());
  for (const auto& text : saved.left) {
    if (told_left_.insert(text).second) notice(text);  // each save tries again
  }
  std::erase(folder_.damaged, fs::path(saved.path));  // it has taken that one's place
  const Family& family = session_->folder().family;
  const std::string& names = family.elsewhere.alone.names;
  if (!names.empty() && !adapters && trains_only(*source_, session_->plan(), names)) {
    together(job_.control(), "saving " + family.elsewhere.alone.file, [&] {
      if (job_.reports()) write_alone(family, saved.path, folder_.dir);
    });
  }
  return saved;
}

FineTuned FineTuneRun::finish(const TrainOutcome& outcome) {
  const TrainerState& state = trainer_->state();
  RunEnded ended{.outcome = outcome.interrupted ? "interrupted" : "done",
                 .exit_code = static_cast<int>(outcome.interrupted ? ExitCode::kInterrupted : ExitCode::kOk),
                 .seconds = outcome.seconds,
                 .train_loss = outcome.train_loss,
                 .samples_per_second = static_cast<double>(outcome.samples) / std::max(outcome.seconds, 1e-9),
                 .steps_per_second = static_cast<double>(outcome.steps) / std::max(outcome.seconds, 1e-9),
                 .step = state.global_step,
                 .last_checkpoint = outcome.last_checkpoint};
  if (outcome.interrupted) {
    if (outcome.last_checkpoint.empty()) {
      notice("interrupted before a step was made: there is nothing to save");
    } else if (options_.resume_command) {
      ended.next_command = options_.resume_command(outcome.last_checkpoint);
    }
  } else if (!outcome.last_checkpoint.empty()) {
    const char* const flag = session_->adapters() ? "--adapters" : "--model";
    const bool best = options_.load_best_model_at_end && !state.best_model_checkpoint.empty();
    ended.next_command =
        shell_command({"lockstep", "infer", flag, best ? state.best_model_checkpoint : outcome.last_checkpoint});
  }
  if (!outcome.last_checkpoint.empty()) tell_unsaved_best();
  ended.best_checkpoint = state.best_model_checkpoint;
  ended.best_metric = state.best_model_checkpoint.empty() ? state.best_metric : state.best_saved_metric;
  MemoryMeasured memory = meter_->measure(trainer_->largest_batch());
  memory.step = ended.step;
  memory.max_steps = state.max_steps;
  memory.last = true;
  if (announced_) events_.emit(memory);
  ended.communication = communication_of(job_, options_.run.comm_figures);
  if (announced_ && !ended.communication.empty()) {
    write_json(folder_.dir / "communication.json", communication_json(ended.communication, /*labels=*/true));
  }
  if (job_.reports() && options_.create_checkpoint_symlink) {
    for (const auto& text : link_checkpoints(folder_.dir, outcome.last_checkpoint, state.best_model_checkpoint)) {
      notice(text);
    }
  }
  if (job_.reports()) events_.emit(ended);
  return {.interrupted = outcome.interrupted,
          .dir = folder_.dir,
          .last_checkpoint = outcome.last_checkpoint,
          .best_checkpoint = state.best_model_checkpoint,
          .steps = state.global_step,
          .train_loss = outcome.train_loss,
          .seconds = outcome.seconds};
}

}  // namespace lockstep
