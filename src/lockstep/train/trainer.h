// The training loop: windows of micro-batches become optimizer steps, the same on every rank.
//
// Example:
//   Trainer trainer({plan, store, executor, adamw, data, control, loader, events}, options, hooks);
//   if (resuming) trainer.restore(state);
//   const TrainOutcome outcome = trainer.run();
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/event.h"
#include "lockstep/exec/executor.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/state/trainer_state.h"
#include "lockstep/train/loss_scale.h"
#include "lockstep/train/train_options.h"
#include "lockstep/train/window.h"

namespace lockstep {

/// What the trainer works with. All borrowed; `events` has sinks on the reporting rank only.
struct TrainerParts {
  const Plan& plan;
  ParamStore& store;
  Executor& executor;
  ShardedAdamW& adamw;
  Communicator& data;
  Communicator& control;
  Loader& loader;
  const EventBus& events;
};

/// What it asks of others. Empty ones are not asked. save and evaluate are collective.
struct TrainerHooks {
  std::function<bool()> stop_wanted;  // a signal came
  std::function<CheckpointSaved(const TrainerState&)> save;
  std::function<std::optional<EvalDone>(int64_t step)> evaluate;  // nothing: given up, as somebody wished to stop
  std::function<double(const EvalDone&)> judge;  // by what evaluations are compared; empty: by their loss. Collective
  Admission::Fits fits;                          // whether rows fit in memory together; empty: all do
  std::function<MemoryMeasured(const std::string& largest_batch)> measure_memory;  // collective
};

struct TrainOutcome {
  bool interrupted = false;
  bool stopped_early = false;          // no evaluation was better for long enough
  double train_loss = 0, seconds = 0;  // mean over all steps that trained; of this run
  int64_t steps = 0, samples = 0;      // of this run
  std::string last_checkpoint;
};

class Trainer {
 public:
  /// `rows_per_epoch`: the data set's size. `initial` names what does not change: seeds, world, fingerprint.
  Trainer(const TrainerParts& parts, const TrainOptions& options, TrainerHooks hooks, CollateOptions collate,
          int64_t rows_per_epoch, TrainerState initial);

  /// Continues at the place of a checkpoint whose weights and optimizer are already in the store. A run by epochs ends
  /// when its rows have had them, however many steps that takes with today's batches.
  void restore(const TrainerState& state);

  /// Until the last step, or until any rank wishes to stop, in an evaluation too, which is then made when the run goes on; then saves, unless no
  /// step was made since it began. Throws Error(kNumerics) on a loss or gradient
  /// that is not finite (bf16, f32), naming the step, the block and the rank. Collective.
  TrainOutcome run();

  const TrainerState& state() const { return state_; }
  std::string largest_batch() const;  // that came to this rank, in words

 private:
  struct Sums {
    double squares = 0, loss = 0, talker_loss = 0;  // loss: with the talker's, weighted
    int64_t correct = 0, computed = 0;              // computed: tokens, with padding
  };
  struct BatchSize {
    int64_t rows = 0, tokens = 0, area = 0;  // tokens: of the longest row; area: of the batch, with its padding
    bool packed = false;
    Modalities modalities = {};
  };
  struct Figures {
    bool updated = false;
    double loss = 0, talker_loss = 0, grad_norm = 0, learning_rate = 0;
    int64_t correct = 0, computed = 0;
  };
  int64_t rows_per_batch() const;  // of a micro-batch, over all ranks
  void set_schedule();
  void advance(TrainOutcome& outcome);
  void after_step(TrainOutcome& outcome, bool evaluates);
  void end_here(TrainOutcome& outcome);
  Figures step(Window& window);
  Sums accumulate(Window& window);
  std::vector<uint64_t> row_keys(const MicroBatch& micro, uint64_t use) const;
  Figures update(const Sums& sums);
  [[noreturn]] void report_not_finite(const Sums& sums) const;
  void count(const Window& window, const Figures& figures);
  void log(const Figures& figures);
  void note_size(const MicroBatch& micro);
  void report_skipped_rows();
  bool evaluate(bool may_be_best);
  void count_save();
  void stop_early(TrainOutcome& outcome, int64_t patience, int64_t in_vain, std::string_view what);
  void save(TrainOutcome& outcome);
  bool is_due(int64_t every, bool epochs) const;
  bool is_delayed() const;

  TrainerParts parts_;
  TrainOptions options_;
  TrainerHooks hooks_;
  Schedule schedule_;
  std::optional<Admission> admission_;
  WindowReader reader_;
  LossScale loss_scale_;
  int64_t rows_per_epoch_;
  Recorder& recorder_;
  TrainerState state_;

  // Of this run, for the figures that people see.
  Clock::time_point started_ = Clock::now();
  int64_t first_step_ = 0, samples_at_log_ = 0, tokens_at_log_ = 0, reported_skipped_ = 0;
  int64_t steps_at_log_ = 0, saved_step_ = -1;
  BatchSize largest_;
  double busy_seconds_ = 0, busy_cpu_seconds_ = 0;  // in steps since the last log: without evaluation and saving
  CommCounters counters_at_log_;
};

}  // namespace lockstep
