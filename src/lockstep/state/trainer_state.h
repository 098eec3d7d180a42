// trainer_state.json: where a run stands. The Hugging Face Trainer's keys, and under "lockstep" what an exact resume
// needs besides weights and optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/loader.h"

namespace lockstep {

/// Of train/loss_scale: DeepSpeed's counters.
struct LossScaleState {
  double scale = 65536.0;
  int64_t steps = 0, last_overflow = -1, hysteresis = 2;
  bool operator==(const LossScaleState&) const = default;
};

/// Sums since the last logged step, so that a logged mean is the same whether or not the run was interrupted in
/// between.
struct LogSums {
  double loss = 0;  // of step losses
  int64_t steps = 0, correct_tokens = 0, target_tokens = 0;
  double talker_loss = 0;  // of those steps that had speech
  int64_t talker_steps = 0;
  bool operator==(const LogSums&) const = default;
};

/// What decides in which order an epoch's rows come: a run goes on in the same, or rows would be lost and repeated.
struct RowOrder {
  uint64_t data_seed = 0;
  bool shuffle = true;
  std::string groups = {};  // in words: as what, and by which sizes, rows come together; "": one by one
  int64_t chunk = 0;        // rows by which an order by length is cut; 0: there is none
  bool operator==(const RowOrder&) const = default;
};

struct TrainerState {
  int64_t global_step = 0, max_steps = 0;
  int64_t updates = 0;  // steps of the schedule: global_step without overflowed ones
  double epoch = 0, num_train_epochs = 0;
  int64_t logging_steps = 0, save_steps = 0, eval_steps = 0, train_batch_size = 0;
  int64_t tokens_seen = 0, samples_seen = 0, skipped_rows = 0;
  int64_t tokens_computed = 0;  // with padding
  double total_loss = 0;        // of all step losses
  int64_t loss_steps = 0;       // that it is the sum of: without those that trained nothing
  LoaderCursor cursor;
  LossScaleState loss_scale;
  LogSums since_log;
  int64_t rows_per_step = 0;      // over all ranks; 0: of a checkpoint that does not say
  std::optional<RowOrder> order;  // nullopt: of a checkpoint that does not say
  uint64_t seed = 0;
  int world = 1, zero_stage = 0;
  std::string dataset_fingerprint;
  std::string launch_id;                 // of the launcher whose ranks saved it; empty: there was none
  std::vector<std::string> log_history;  // each a JSON object
  std::optional<double> best_metric;
  int64_t best_global_step = 0;
  std::string best_model_checkpoint;        // of the best evaluation that was saved, which may be another
  std::optional<double> best_saved_metric;  // of that one
  std::string best_of;  // what evaluations are compared by: "lowest loss"; empty: of a checkpoint that does not say
  int64_t saves_without_better = 0, best_step_at_save = -1,
          evaluations_without_better = 0;  // of a run that may end early
  bool evaluation_due = false;             // of global_step: a stop has cut it short

  struct Judged {
    int64_t step = 0;
    double metric = 0;
  };
  std::optional<Judged> worth_saving;  // the last evaluation that was better than what is saved; not kept

  /// Takes an evaluation of now into account; returns whether it is the best so far.
  bool judge(double metric, bool greater_is_better);
  /// A checkpoint of now stands at `path`.
  void saved_as(const std::string& path);
  /// From now on evaluations are compared by `what`: where that is another than it was, none is the best yet.
  void compare_by(const std::string& what);
};

Json to_json(const TrainerState& state);
/// Throws UserError(kCheckpoint) naming `where` and the key: a file of the Hugging Face Trainer has no "lockstep" part.
TrainerState trainer_state_from_json(const Json& json, const std::string& where);

}  // namespace lockstep
