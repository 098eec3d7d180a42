// The flags of `lockstep sft`, under ms-swift's names and with its defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/batch_search.h"
#include "lockstep/cli/component_flags.h"
#include "lockstep/cli/metric_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/swift_flags.h"
#include "lockstep/plan/plan.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/train/train_options.h"

namespace lockstep {

struct SftFlags {
  RunFlags run;
  RowFlags rows;
  ComponentFlags components;
  std::vector<std::string> dataset, val_dataset, report_to{"tensorboard"};
  double split_dataset_ratio = 0;
  std::string output_dir, resume_from_checkpoint, tuner_type = "full";
  bool add_version = true, dataset_shuffle = true, predict_with_generate = false;
  std::optional<uint64_t> data_seed;
  std::optional<int64_t> gradient_accumulation_steps, eval_steps;
  std::string save_strategy = "steps", eval_strategy, lr_scheduler_type = "cosine";
  int64_t save_total_limit = 0, per_device_eval_batch_size = 1, max_new_tokens = 64;
  bool save_only_model = false;
  bool gradient_checkpointing = true;
  std::optional<bool> vit_gradient_checkpointing;
  MetricFlags metric;
  std::vector<AnswerMetric> metrics;  // chosen
  BatchFlags batch{.size = 1};        // auto becomes a number before train_options is asked
  TrainOptions train;
  AdamWOptions adamw;

  std::string args_json;             // args.json: every flag's value
  std::vector<std::string> notices;  // what a person should know about the flags

  /// Decided by other flags where they were not given.
  PlanOptions plan_options(int world, Dtype compute) const;
  /// Micro-batches of a step: as asked, else enough for 16 rows.
  int64_t accumulation(int world) const;
  /// With strategies turned into steps (0: never).
  TrainOptions train_options(int world, int64_t batches_per_epoch, bool evaluates) const;
};

/// Reads SftFlags from an app, which must live no longer than this.
class SftParser {
 public:
  enum class Verb { kSft, kPlan };  // what the run folder holds does not matter to a plan
  explicit SftParser(SftFlags& flags) : flags_(flags) {}
  void add_to(CLI::App& app, Verb verb);
  void check();  // when they have been parsed. Throws UserError(kUsage)

 private:
  SftFlags& flags_;
  SwiftFlags swift_;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<SftFlags> parse_sft_flags(const std::vector<std::string>& args);

}  // namespace lockstep
