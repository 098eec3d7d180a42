// Everything that decides how a run trains, apart from model, data and plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/data/loader.h"
#include "lockstep/model/block.h"
#include "lockstep/plan/loss_scaling.h"
#include "lockstep/train/schedule.h"

namespace lockstep {

struct TrainOptions {
  int64_t gradient_accumulation_steps = 1;
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // over num_train_epochs when positive
  double max_epochs = 0;   // the run ends behind so many whatever else is asked for; 0: no such end
  double learning_rate = 1e-5, warmup_ratio = 0, min_lr_rate = 0;
  std::map<Component, double> rate_ratios;  // of components with a rate of their own: as the optimizer has them
  ScheduleKind schedule = ScheduleKind::kCosine;
  ScheduleShape schedule_shape;
  int64_t warmup_steps = 0;
  double max_grad_norm = 1.0;  // 0: no clipping
  LossScaling loss_scaling;    // where float16 is computed
  int64_t loss_chunk = 512;
  double neftune_noise_alpha = 0;   // of noise on embeddings; 0: none
  double label_smoothing = 0;       // part of each label of a text that is spread over the vocabulary
  double talker_loss_weight = 1.0;  // of the mean loss of codes of speech, beside that of text
  int64_t logging_steps = 5, save_steps = 500, eval_steps = 500;  // 0: never
  /// At the end of each epoch, wherever ranks and batches put it; the steps are then those that a whole one has.
  bool log_epochs = false, save_epochs = false, eval_epochs = false;
  double eval_delay = 0;  // no evaluation is due before so many steps, or epochs where these are what is followed
  bool logging_first_step = true;
  bool save_at_end = true, eval_at_end = true;
  bool save_best = false;               // behind evaluations that were better than all before them
  bool logs = true;                     // false: no step is told
  bool eval_on_start = false;           // before the first step
  bool greater_is_better = false;       // of what TrainerHooks::judge measures
  int64_t early_stop_interval = 0;      // the run ends when so many saves in a row saw no better evaluation; 0: never
  int64_t early_stopping_patience = 0;  // or when so many evaluations in a row were not better; 0: never
  int64_t per_device_train_batch_size = 1;
  uint64_t seed = 42;
  bool strict = false;  // a row that does not fit in memory is an error, instead of skipped and counted
};

/// Optimizer steps of an epoch (the last window may be shorter) and of the whole run. Source: transformers 5.23
/// Trainer.set_initial_training_values.
int64_t steps_per_epoch(int64_t batches_per_epoch, int64_t gradient_accumulation_steps);
int64_t total_steps(const TrainOptions& options, int64_t batches_per_epoch);

struct EpochRows {
  int64_t whole = 0;      // that a whole epoch trains
  int64_t end = 0;        // where the cursor's own epoch is over: Loader::epoch_end
  int64_t per_batch = 1;  // that all ranks take in a micro-batch
};

/// Steps that remain of num_train_epochs from `cursor`: by rows, so that a run which goes on with other ranks, batches or
/// accumulation ends where every row has had its epochs. max_steps plays no part.
int64_t steps_left(const TrainOptions& options, const LoaderCursor& cursor, const EpochRows& rows);

}  // namespace lockstep
