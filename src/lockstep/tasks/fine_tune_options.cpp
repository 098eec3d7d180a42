#include "lockstep/tasks/fine_tune_options.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Steps of a strategy; the end of an epoch may be "each N steps" because epochs have equally many.
int64_t steps_of(const std::string& strategy, int64_t steps, int64_t per_epoch) {
  if (strategy == "no") return 0;
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
  for (const auto& strategy : {save_strategy, eval_strategy}) {
    if (strategy.empty() || strategy == "steps" || strategy == "epoch" || strategy == "no") continue;
    throw usage_error(
        fmt::format("a strategy of saving or evaluating: expected steps, epoch or no, found \"{}\"", strategy));
  }
  run.placement.check();
  components.check_unbuilt(run.without);
  tuner.check();
  grouping.check();
  (void)components.rate_ratios(train.learning_rate);
  (void)metric.chosen(predict_with_generate);
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
      {"update", {adamw.beta1, adamw.beta2, adamw.epsilon, adamw.weight_decay, rates(adamw.rate_ratios)}},
      {"batch", {batch.rows, gradient_accumulation_steps.value_or(0), per_device_eval_batch_size}},
      {"when",
       {train.logging_steps, train.logging_first_step, save_strategy, train.save_steps, eval_strategy,
        eval_steps.value_or(0), train.save_at_end, train.eval_at_end, step_parts.save, step_parts.eval,
        step_parts.logging}},
      {"tuner", tuner.fingerprint()},
      {"saving", {save_only_model, save_total_limit}},
      {"answers", {predict_with_generate, max_new_tokens}}};
  return fmt::format("{:016x}", std::hash<std::string>()(all.dump()));
}

PlanOptions FineTuneOptions::plan_options(int world, Dtype compute) const {
  return {.world = world,
          .zero = run.zero,
          .compute = compute,
          .reduce = reduce_dtype,
          .training = true,
          .recompute = gradient_checkpointing,
          .recompute_vision = vit_gradient_checkpointing.value_or(gradient_checkpointing),
          .frozen = components.frozen(),
          .freeze_prefixes = components.freeze_parameters};
}

int64_t FineTuneOptions::accumulation(int world) const {
  const int64_t rows_at_once = std::max<int64_t>(1, batch.rows) * world;
  return gradient_accumulation_steps.value_or(std::max<int64_t>(1, (16 + rows_at_once - 1) / rows_at_once));
}

TrainOptions FineTuneOptions::train_options(int world, int64_t batches_per_epoch, bool evaluates) const {
  TrainOptions out = train;
  out.seed = rows.seed;
  out.strict = rows.strict;
  out.per_device_train_batch_size = batch.rows;
  out.gradient_accumulation_steps = accumulation(world);
  const int64_t per_epoch = steps_per_epoch(batches_per_epoch, out.gradient_accumulation_steps);
  const std::string evaluation = eval_strategy.empty() ? save_strategy : eval_strategy;
  const int64_t all = total_steps(out, batches_per_epoch);
  const int64_t save_each = steps_of_part(step_parts.save, all, train.save_steps);
  const int64_t eval_each = eval_steps ? steps_of_part(step_parts.eval, all, *eval_steps) : save_each;
  out.logging_steps = steps_of_part(step_parts.logging, all, train.logging_steps);
  out.save_steps = steps_of(save_strategy, save_each, per_epoch);
  out.eval_steps = evaluates ? steps_of(evaluation, eval_each, per_epoch) : 0;
  out.save_at_end = save_strategy != "no";
  out.eval_at_end = evaluates && evaluation != "no";
  return out;
}

}  // namespace lockstep
