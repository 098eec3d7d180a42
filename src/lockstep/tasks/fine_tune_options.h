// What a fine-tuning run is asked for: plain data under ms-swift's names and with its defaults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/infer/sampler.h"
#include "lockstep/metric/answer_metrics.h"
#include "lockstep/plan/component_choice.h"
#include "lockstep/plan/plan.h"
#include "lockstep/session/batch_search.h"
#include "lockstep/session/row_options.h"
#include "lockstep/session/run_options.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tasks/metric_options.h"
#include "lockstep/tasks/row_grouping.h"
#include "lockstep/tasks/tuner.h"
#include "lockstep/train/train_options.h"
#include "lockstep/watch/logger_options.h"

namespace lockstep {

/// Of all steps, in place of a number of them; 0: the number counts.
struct StepParts {
  double save = 0, eval = 0, logging = 0;
};

struct FineTuneOptions {
  RunOptions run;
  RowOptions rows;
  ComponentChoice components;
  TunerOptions tuner;
  std::vector<std::string> dataset, val_dataset;  // JSONL or JSON files; file#N takes N rows
  double split_dataset_ratio = 0;                 // part of `dataset` kept for evaluation; from 1 on so many rows
  std::optional<uint64_t> data_seed;              // of the order of rows; nullopt: rows.seed
  bool dataset_shuffle = true;
  RowGrouping grouping;

  TrainOptions train;  // rates, epochs, logging; steps of strategies and of batches are worked out below
  AdamWOptions adamw;  // rates of components are worked out from `components`
  BatchSize batch{.rows = 1};
  std::optional<int64_t> gradient_accumulation_steps;  // nullopt: so that a step has rows_of_step
  std::optional<int64_t> rows_of_step;                 // over all ranks, which must be so many; nullopt: about 16
  bool decays_all = false;                             // weight decay is for biases and norms too
  std::optional<Dtype> reduce_dtype;                   // of gradients between ranks; nullopt: as they are computed
  bool gradient_checkpointing = true;
  bool checkpoint_as_needed = false;               // blocks that memory has room for keep what they made
  std::optional<bool> vit_gradient_checkpointing;  // nullopt: as above

  std::filesystem::path output_dir;    // empty: output/<name of the model's folder>
  bool add_version = true;             // a folder vN-<time> of its own for each run
  bool overwrite_output_dir = false;   // checkpoints of an earlier run there go
  std::string resume_from_checkpoint;  // a checkpoint-N folder, true, auto, or nothing
  std::string save_strategy = "steps",
              eval_strategy = "";     // steps | epoch | no; saving: best too; empty: as save_strategy
  std::optional<int64_t> eval_steps;  // nullopt: train.save_steps
  StepParts step_parts;
  int64_t save_total_limit = 0;  // checkpoints kept; 0: all
  bool save_only_model = false;
  int64_t max_shard_bytes = 5'000'000'000;            // of a file of weights
  bool create_checkpoint_symlink = false;             // "last" and "best" in output_dir, at the end
  std::vector<std::string> report_to{"tensorboard"};  // also wandb, swanlab, mlflow, programs; "none"
  LoggerOptions logger;                               // of those that are programs

  std::string logging_strategy = "steps";      // steps | epoch | no
  std::string metric_for_best_model = "loss";  // or token_acc, or whatever an evaluation measures
  std::optional<bool> greater_is_better;       // of it; nullopt: unless it is a loss or the perplexity
  bool load_best_model_at_end = false;         // what goes on from this run takes its best checkpoint
  bool dataloader_drop_last = false;           // rows that fill no micro-batch of all ranks are left out of an epoch

  int64_t per_device_eval_batch_size = 1, max_new_tokens = 64;
  bool predict_with_generate = false;  // evaluation also generates answers and measures them
  SamplingOptions sampling;            // of these
  MetricOptions metric;

  std::string args_json = "{}\n";       // what args.json keeps: for people, and to run again
  std::function<bool()> stop_wanted{};  // asked at the end of each step: save, and end
  std::string launch_id;  // of a launcher that starts its ranks again: what those before have left is gone on with
  /// The command that goes on from a checkpoint, for a run that was stopped; empty: none is told.
  std::function<std::string(const std::string& checkpoint)> resume_command{};

  /// Throws UserError(kUsage): what contradicts each other or can only be a slip.
  void check() const;
  void require_dataset() const;
  bool reports_to(std::string_view name) const;
  /// Those of `report_to` that a program feeds.
  std::vector<std::string> loggers() const;
  /// The metric without "eval_", as evaluations call it.
  std::string judged_by() const;
  /// Of that metric.
  bool more_is_better() const;
  PlanOptions plan_options(int world, Dtype compute) const;
  /// Equal where all that must be the same on every rank is the same, the model, the plan and the data set apart.
  std::string fingerprint() const;
  bool saves() const { return save_strategy != "no"; }
  /// Micro-batches of a step: as asked, else enough for its rows.
  int64_t accumulation(int world) const;
  /// Throws UserError(kUsage) where micro-batches and ranks do not make `rows_of_step`. A `batch` of auto passes.
  void check_rows_of_step(int world) const;
  /// With strategies and parts turned into steps (0: never). `batch` is a number by then. Throws UserError(kUsage) where the
  /// best evaluation is wished for and comes at steps that are not saved.
  TrainOptions train_options(int world, int64_t batches_per_epoch, bool evaluates) const;

 private:
  std::string evaluation_strategy() const;  // with best, which evaluates by steps where nothing is said
  void check_following() const;
  void check_metric_name() const;
  void require_saved(int64_t save_each, int64_t eval_each) const;
  void check_loggers() const;
};

}  // namespace lockstep
