// One training run: folder, model, rows, trainer, sinks, checkpoints.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/cli/memory_meter.h"
#include "lockstep/cli/prediction.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/cli/session.h"
#include "lockstep/cli/stop_signals.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/data/dataset.h"
#include "lockstep/metric/program.h"
#include "lockstep/state/checkpoint.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

class SftRun {
 public:
  SftRun(Job& job, const SftFlags& flags, std::vector<std::string> args, const Env& env, const StopSignals& signals);
  ~SftRun();

  /// All of it; returns the exit code. An error is also told to the run's files before it is thrown on.
  int run();

 private:
  void choose_folder();
  void find_programs();
  void open_rows();
  void tell_rows();
  RowsOfWindow planned_rows(const Processor& processor);
  Admission::Fits admission() const;
  RehearsalOptions scene() const;
  void predict();
  static bool fits_in_evaluation(const MemoryForecast& forecast);
  void check_fits();
  void check_first_sample();
  void make_trainer();
  void announce();
  Json whole_plan() const;  // plan.json, as `lockstep plan --json` prints it
  int finish(const TrainOutcome& outcome);
  void tell_failure(const Error& error);

  int64_t find_batch_size();
  TrainerState fresh_state() const;
  LoaderOptions loader_options(int64_t batch_size, bool shuffle) const;
  CheckpointSaved save(const TrainerState& state);
  EvalDone evaluate(int64_t step);
  void evaluate_answers(EvalDone& done);
  void notice(const std::string& text) const { events_.emit(Notice{text}); }

  Job& job_;
  SftFlags flags_;
  std::vector<std::string> args_;
  const Env& env_;
  const StopSignals& signals_;
  Clock::time_point started_ = Clock::now();

  std::vector<std::unique_ptr<EventSink>> sinks_;
  EventBus events_, files_;  // files_: all but the console, which an error's text would reach twice
  bool announced_ = false;
  RunFolder folder_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<ModelSource> source_;
  SideFiles side_files_;
  std::optional<Dataset> train_rows_, val_rows_;
  std::vector<Program> programs_;  // rank 0
  std::unique_ptr<Loader> train_loader_, val_loader_;
  std::unique_ptr<ShardedAdamW> adamw_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<RehearsedRows> longest_;  // of the data, on the rank that plans
  std::vector<Features> longest_evaluated_;
  JobShape planned_;  // as its forecast was made
  std::optional<MemoryMeter> meter_;
  TrainOptions options_;
};

}  // namespace lockstep
