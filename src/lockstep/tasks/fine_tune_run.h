// What fine_tune() works with while it runs.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/file_lock.h"
#include "lockstep/data/dataset.h"
#include "lockstep/session/forecast.h"
#include "lockstep/session/memory_meter.h"
#include "lockstep/session/session.h"
#include "lockstep/state/checkpoint.h"
#include "lockstep/tasks/fine_tune.h"
#include "lockstep/tasks/row_grouping.h"
#include "lockstep/tasks/run_folder.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

class FineTuneRun {
 public:
  FineTuneRun(Job& job, FineTuneOptions options, const EventBus& events);
  ~FineTuneRun();

  FineTuned run();

 private:
  /// Sends events on to the caller's sinks.
  class Caller final : public EventSink {
   public:
    explicit Caller(const EventBus& bus) : bus_(bus) {}
    void on(const Event& event) override { bus_.emit(event); }

   private:
    const EventBus& bus_;
  };

  void find_programs();
  void choose_folder();
  void own_folder();
  void open_rows();
  void keep_split_rows() const;
  void check_resumed();
  void resume_from(RunOptions& run) const;
  std::shared_ptr<const AdapterLayout> adapters();
  void decide();
  void bring_together();
  void split_rows();
  /// Those of evaluation that are kept in a file: whole, where the loss is of pieces.
  const Dataset& kept_rows() const { return whole_val_rows_ ? *whole_val_rows_ : *val_rows_; }
  void tell_rows();
  void tell_no_evaluation();
  const RehearsedRows& planned_rows();
  void choose_kept_blocks();
  RowsOfStep planned_step() { return planned_rows().step(planned_.batch, planned_.accumulation); }
  Admission::Fits admission() const;
  RehearsalOptions rehearsed_devices() const;
  void predict();
  static bool fits_in_evaluation(const MemoryForecast& forecast);
  void check_fits();
  void read_side_files();
  void check_machine();
  void check_first_sample();
  std::map<Component, double> rate_ratios() const;
  void make_trainer();
  void restore_trainer();
  void make_folder();
  void announce();
  PlannedJob planned_job() const;
  Json whole_plan() const;  // plan.json, as `lockstep plan --json` prints it
  void remove_overwritten();
  void tell_unsaved_best() const;
  FineTuned finish(const TrainOutcome& outcome);
  void tell_failure(const Error& error);

  uint64_t data_seed() const { return options_.data_seed.value_or(options_.rows.seed); }
  RowOrder row_order() const;
  int64_t rows_at_once() const;
  void try_batch(const std::vector<Features>& rows);
  int64_t foreseen_peak(int64_t batch);
  int64_t find_batch_size();
  TrainerState fresh_state() const;
  CollateOptions collate() const;
  LoaderOptions loader_options(int64_t batch_size, bool shuffle) const;
  CheckpointSaved save(const TrainerState& state);
  std::optional<EvalDone> evaluate(int64_t step);
  double judge(const EvalDone& done);
  bool evaluate_answers(EvalDone& done);
  void notice(const std::string& text) const { events_.emit(Notice{text}); }

  Job& job_;
  FineTuneOptions options_;
  Caller caller_;
  Clock::time_point started_ = Clock::now();

  std::vector<std::unique_ptr<EventSink>> sinks_;  // of the run folder's files
  EventBus events_, files_;  // files_: without the caller's, whom an error's text reaches by itself
  bool announced_ = false;
  RunFolder folder_;
  std::set<std::string> told_left_;      // of older checkpoints that could not be removed
  std::optional<FileLock> folder_lock_;  // on the rank that reports
  std::unique_ptr<Session> session_;
  MemoryForecast forecast_;  // of the rank that reports
  std::unique_ptr<ModelSource> source_;
  SideFiles side_files_;
  std::string args_kept_;  // args.json, with how rows are rendered; on the rank that reports
  std::optional<Dataset> train_rows_, val_rows_;
  std::optional<Dataset> whole_val_rows_;            // where val_rows_ are pieces of them
  GroupedRows grouped_;                              // of the training rows
  int64_t bin_tokens_ = 0;                           // of a bin
  int64_t resumed_chunk_ = 0;                        // rows by which an order by length was cut where the run began
  std::vector<Program> programs_;                    // rank 0
  std::vector<std::unique_ptr<EventSink>> loggers_;  // rank 0; they move to sinks_ when there is something to tell
  std::unique_ptr<Loader> train_loader_;
  std::unique_ptr<ShardedAdamW> adamw_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<RehearsedRows> longest_;  // of the data, on the rank that plans
  int64_t waiting_bytes_ = 0;             // of rows that the loader has ready, as that rank found
  RowsOfStep longest_evaluated_;
  JobShape planned_;  // as its forecast was made
  std::optional<MemoryMeter> meter_;
  TrainOptions train_options_;
};

}  // namespace lockstep
