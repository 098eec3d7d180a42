#include "lockstep/tasks/fine_tune_options.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// By a program: one that is carried along, or a person's own, which is named with its path.
bool is_fed(const std::string& name) { return is_tracker(name) || name.find('/') != std::string::npos; }

/// Steps of a strategy; 0: it has none.
int64_t steps_of(const std::string& strategy, int64_t steps, int64_t per_epoch) {
  if (strategy == "no" || strategy == "best" || strategy == "end") return 0;
  return strategy == "epoch" ? per_epoch : steps;
}

/// Source: transformers 5.23.0, TrainerState.compute_steps.
int64_t steps_of_part(double part, int64_t all, int64_t steps) {
  return part == 0 ? steps : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(part * static_cast<double>(all))));
}

}  // namespace

void FineTuneOptions::check() const {
  if (train.max_steps == 0 || train.max_steps < -1) {
    throw usage_error(fmt::format("--max_steps: expected -1 or at least 1, found {}", train.max_steps));
  }
  for (const auto& strategy : {save_strategy == "best" ? "steps" : save_strategy,
                               eval_strategy == "end" ? "no" : eval_strategy, logging_strategy}) {
    if (strategy.empty() || strategy == "steps" || strategy == "epoch" || strategy == "no") continue;
    throw usage_error(fmt::format(
        "a strategy of saving, evaluating or logging: expected steps, epoch or no (of saving best, of evaluating end), "
        "found \"{}\"",
        strategy));
  }
  run.placement.check();
  if (checkpoint_as_needed && !run.placement.max_memory.empty()) {
    throw usage_error("--gradient_checkpointing auto beside --max_memory: which of both is to fill the devices?",
                      "--memory_fraction or --memory_limit say how much auto may use");
  }
  components.check_unbuilt(run.without);
  tuner.check();
  grouping.check();
  (void)components.rate_ratios(train.learning_rate);
  (void)metric.chosen(predict_with_generate);
  if (grouping.streaming && train.max_steps <= 0) {
    throw usage_error(
        "--streaming true: expected --max_steps beside it, as a run of streamed rows is as long as it is said to be",
        "--max_steps 1000, and --max_epochs to end sooner");
  }
  if (grouping.streaming && rows.truncation == Truncation::kSplit) {
    throw usage_error(
        "--truncation_strategy split reads every row before the first step, which --streaming true is not to",
        "--streaming false, or --truncation_strategy right");
  }
  const double part = split_dataset_ratio;
  if ((part > 0.99 && part < 1) || (part > 1 && part != std::floor(part))) {
    throw usage_error(
        fmt::format("--split_dataset_ratio: expected a part from 0 to 0.99, or a whole number of rows, found {:g}",
                    part),
        "--split_dataset_ratio 0.01");
  }
  const std::string& conversation = run.joint.conversation;
  const std::string plain = !run.use_chat_template  ? "--use_chat_template false"
                            : !conversation.empty() ? "--conversation " + conversation
                                                    : "";
  if (!plain.empty() && !rows.system.empty()) {
    throw usage_error(fmt::format("--system beside {}: only a chat template writes a system message", plain),
                      "leave one of them out");
  }
  if (!run.use_chat_template && !conversation.empty()) {
    throw usage_error(fmt::format("--use_chat_template false beside --conversation {}: each spells rows in its own way",
                                  conversation),
                      "leave one of them out");
  }
  check_following();
  check_loggers();
}

/// A word of the Trainer's for all that is installed: what needs nothing.
bool FineTuneOptions::reports_to(std::string_view name) const {
  const auto stands = [&](std::string_view word) { return std::ranges::find(report_to, word) != report_to.end(); };
  return stands(name) || (name == "tensorboard" && stands("all"));
}

std::vector<std::string> FineTuneOptions::loggers() const {
  std::vector<std::string> out;
  std::ranges::copy_if(report_to, std::back_inserter(out), is_fed);
  return out;
}

void FineTuneOptions::check_loggers() const {
  const std::string expected = "tensorboard, wandb, swanlab, mlflow, a program of yours (./my_logger.py), or none";
  for (const auto& name : report_to) {
    const bool known = name == "tensorboard" || name == "all" || name == "none" || name == "None" || name.empty();
    if (known || is_fed(name)) continue;
    throw usage_error(fmt::format("--report_to {}: expected {}", name, expected),
                      "logging.jsonl of the run folder holds all curves, for whatever reads them");
  }
  if (report_to.size() > 1 && reports_to("none")) {
    throw usage_error(fmt::format("--report_to {}: none stands beside others", fmt::join(report_to, " ")),
                      "--report_to none alone, or without it");
  }
}

std::string FineTuneOptions::judged_by() const {
  std::string name = metric_for_best_model;
  if (name.starts_with("eval_")) name = name.substr(5);
  std::ranges::replace(name, '-', '_');
  return name == "token_accuracy" ? "token_acc" : name;
}

bool FineTuneOptions::more_is_better() const {
  const std::string judged = judged_by();
  return greater_is_better.value_or(!judged.ends_with("loss") && judged != "perplexity");
}

std::string FineTuneOptions::evaluation_strategy() const {
  if (!eval_strategy.empty()) return eval_strategy;
  return save_strategy == "best" ? "steps" : save_strategy;
}

/// What follows evaluations needs some.
void FineTuneOptions::check_following() const {
  const std::string evaluation = evaluation_strategy();
  const bool evaluates = evaluation != "no" && (!val_dataset.empty() || split_dataset_ratio > 0);
  const auto require = [](bool good, const char* flag, const std::string& what, const char* cure) {
    if (!good) throw usage_error(fmt::format("{}: {}", flag, what), cure);
  };
  const char* const some = "--val_dataset FILE, or --split_dataset_ratio 0.01";
  if (load_best_model_at_end) {
    require(evaluates, "--load_best_model_at_end true", "nothing is evaluated, so no checkpoint is the best", some);
    require(save_strategy == evaluation || save_strategy == "best", "--load_best_model_at_end true",
            fmt::format("--save_strategy {} and --eval_strategy {}: what is evaluated is not what is saved",
                        save_strategy, evaluation),
            "the same word for both");
    const bool parts = step_parts.save > 0 || step_parts.eval > 0;  // of how many steps, train_options() knows
    if (save_strategy == "steps" && !parts) require_saved(train.save_steps, eval_steps.value_or(train.save_steps));
  }
  if (save_strategy == "best") {
    require(evaluates, "--save_strategy best", "nothing is evaluated, so nothing can become better", some);
    require(train.early_stop_interval == 0, "--early_stop_interval",
            "it counts checkpoints that saw no better evaluation, and --save_strategy best saves none of these",
            "--early_stopping_patience, which counts evaluations");
  }
  if (train.early_stopping_patience > 0) {
    require(evaluates, "--early_stopping_patience", "nothing is evaluated, so nothing can become better", some);
  }
  if (train.early_stop_interval > 0) {
    require(evaluates, "--early_stop_interval", "nothing is evaluated, so nothing can become better", some);
    require(save_strategy != "no", "--early_stop_interval", "it counts checkpoints, and none are saved",
            "--save_strategy steps");
  }
  if (train.eval_on_start) {
    require(!val_dataset.empty() || split_dataset_ratio > 0, "--eval_on_start true", "there are no rows to evaluate",
            some);
  }
  check_metric_name();
}

/// What is evaluated must be saved to be the best.
void FineTuneOptions::require_saved(int64_t save_each, int64_t eval_each) const {
  if (save_each % eval_each == 0) return;
  const auto part = [](double of) { return of > 0 ? fmt::format(" ({:g} of all steps)", of) : std::string(); };
  throw usage_error(fmt::format("--load_best_model_at_end true: --save_steps {}{} is no multiple of --eval_steps {}{}",
                                save_each, part(step_parts.save), eval_each, part(step_parts.eval)),
                    "make it one, both as numbers of steps");
}

/// A slip in its name must not show at the first evaluation. What programs measure is not known before.
void FineTuneOptions::check_metric_name() const {
  const std::string name = judged_by();
  std::vector<std::string> known = {"loss", "token_acc", "talker_loss", "perplexity"};
  if (std::ranges::find(known, name) != known.end()) return;
  if (!predict_with_generate) {
    throw usage_error(fmt::format("--metric_for_best_model: {} is measured on answers, and none are generated",
                                  metric_for_best_model),
                      "--predict_with_generate true, or loss or token_acc");
  }
  if (!metric.programs.empty()) return;
  for (const auto& one : metric.chosen(true)) known.emplace_back(one.name);
  if (std::ranges::find(known, name) != known.end()) return;
  const std::string near = nearest_name(name, known);
  throw usage_error(fmt::format("--metric_for_best_model {}: an evaluation measures {}{}", metric_for_best_model,
                                join(known, ", "), metric.metrics.empty() ? "" : ", by --metrics " + metric.metrics),
                    near.empty() ? "name one of these" : "did you mean " + near + "?");
}

void FineTuneOptions::require_dataset() const {
  if (dataset.empty()) throw usage_error("--dataset is required", "--dataset train.jsonl");
}

std::string FineTuneOptions::fingerprint() const {
  const auto rates = [](const std::map<Component, double>& ratios) {
    std::vector<std::pair<int, double>> out;
    for (const auto& [component, ratio] : ratios) out.emplace_back(static_cast<int>(component), ratio);
    return out;
  };
  const Json all = {
      {"rows", rows.as_json()},
      {"order", {data_seed.value_or(rows.seed), dataset_shuffle, split_dataset_ratio}},
      {"grouping", grouping.as_json()},
      {"length", {train.num_train_epochs, train.max_steps}},
      {"rate",
       {train.learning_rate, train.warmup_ratio, train.warmup_steps, train.min_lr_rate,
        static_cast<int>(train.schedule), train.max_grad_norm, train.talker_loss_weight, rates(train.rate_ratios)}},
      {"update",
       {adamw.beta1, adamw.beta2, adamw.epsilon, adamw.weight_decay, rates(adamw.rate_ratios), train.loss_scaling.fixed,
        train.loss_scaling.initial, train.loss_scaling.least, train.loss_scaling.window, train.loss_scaling.hysteresis,
        train.loss_scaling.refills}},
      {"batch",
       {batch.rows, gradient_accumulation_steps.value_or(0), rows_of_step.value_or(0), per_device_eval_batch_size}},
      {"when",
       {train.logging_steps, train.logging_first_step, save_strategy, train.save_steps, eval_strategy,
        eval_steps.value_or(0), train.save_at_end, train.eval_at_end, step_parts.save, step_parts.eval,
        step_parts.logging}},
      {"following",
       {logging_strategy, judged_by(), greater_is_better.value_or(false), greater_is_better.has_value(),
        train.neftune_noise_alpha, train.label_smoothing, train.early_stop_interval, train.early_stopping_patience,
        train.eval_on_start, train.eval_delay, dataloader_drop_last, train.max_epochs, train.schedule_shape.as_json()}},
      {"memory", {checkpoint_as_needed, batch.memory_fraction}},
      {"tuner", tuner.fingerprint()},
      {"saving", {save_only_model, save_total_limit, max_shard_bytes}},
      {"answers",
       {predict_with_generate, max_new_tokens, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
        sampling.repetition_penalty, sampling.no_repeat_ngram_size, sampling.stop_words,
        sampling.skip_special_tokens}}};
  return fmt::format("{:016x}", std::hash<std::string>()(all.dump()));
}

PlanOptions FineTuneOptions::plan_options(int world, Dtype compute) const {
  return {.world = world,
          .zero = run.zero,
          .compute = compute,
          .reduce = reduce_dtype,
          .decays_all = decays_all,
          .training = true,
          .recompute = gradient_checkpointing,
          .recompute_vision = vit_gradient_checkpointing.value_or(gradient_checkpointing),
          .frozen = components.frozen(),
          .freeze = components.by_name};
}

int64_t FineTuneOptions::accumulation(int world) const {
  const int64_t rows_at_once = std::max<int64_t>(1, batch.rows) * world;
  const int64_t wanted = rows_of_step.value_or(16);
  return gradient_accumulation_steps.value_or((wanted - 1) / rows_at_once + 1);
}

void FineTuneOptions::check_rows_of_step(int world) const {
  if (!rows_of_step || batch.is_auto()) return;
  const int64_t micro_batches = accumulation(world), found = batch.rows * micro_batches * world;
  if (found == *rows_of_step) return;
  throw usage_error(
      fmt::format(
          "--deepspeed: train_batch_size: expected {} rows a step, found {}: --per_device_train_batch_size {} × "
          "{} micro-batches × {} ranks",
          *rows_of_step, found, batch.rows, micro_batches, world),
      "say the same in both, or \"auto\" in the file");
}

TrainOptions FineTuneOptions::train_options(int world, int64_t batches_per_epoch, bool evaluates) const {
  TrainOptions out = train;
  out.seed = rows.seed;
  out.strict = rows.strict;
  out.per_device_train_batch_size = batch.rows;
  out.gradient_accumulation_steps = accumulation(world);
  const int64_t per_epoch = steps_per_epoch(batches_per_epoch, out.gradient_accumulation_steps);
  const std::string evaluation = evaluation_strategy();
  const int64_t all = total_steps(out, batches_per_epoch);
  const int64_t save_each = steps_of_part(step_parts.save, all, train.save_steps);
  const int64_t eval_each = eval_steps ? steps_of_part(step_parts.eval, all, *eval_steps) : save_each;
  const int64_t log_each = steps_of_part(step_parts.logging, all, train.logging_steps);
  out.save_steps = steps_of(save_strategy, save_each, per_epoch);
  out.eval_steps = evaluates ? steps_of(evaluation, eval_each, per_epoch) : 0;
  out.logging_steps = steps_of(logging_strategy, log_each, per_epoch);
  out.save_epochs = save_strategy == "epoch";
  out.eval_epochs = evaluates && evaluation == "epoch";
  out.log_epochs = logging_strategy == "epoch";
  if (load_best_model_at_end && out.eval_steps > 0) require_saved(out.save_steps, out.eval_steps);
  out.logs = logging_strategy != "no";
  out.greater_is_better = more_is_better();
  out.save_best = save_strategy == "best";
  out.save_at_end = saves() && !out.save_best;
  out.eval_at_end = evaluates && evaluation != "no";
  return out;
}

}  // namespace lockstep
