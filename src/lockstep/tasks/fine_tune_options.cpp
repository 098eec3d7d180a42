#include "lockstep/tasks/fine_tune_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Steps of a strategy; the end of an epoch may be "each N steps" because epochs have equally many.
int64_t steps_of(const std::string& strategy, int64_t steps, int64_t per_epoch) {
  if (strategy == "no") return 0;
  return strategy == "epoch" ? per_epoch : steps;
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
  (void)components.rate_ratios(train.learning_rate);
  (void)metric.chosen(predict_with_generate);
}

void FineTuneOptions::require_dataset() const {
  if (dataset.empty()) throw usage_error("--dataset is required", "--dataset train.jsonl");
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
  out.rate_ratios = components.rate_ratios(train.learning_rate);
  out.seed = rows.seed;
  out.strict = rows.strict;
  out.per_device_train_batch_size = batch.rows;
  out.gradient_accumulation_steps = accumulation(world);
  const int64_t per_epoch = steps_per_epoch(batches_per_epoch, out.gradient_accumulation_steps);
  const std::string evaluation = eval_strategy.empty() ? save_strategy : eval_strategy;
  out.save_steps = steps_of(save_strategy, train.save_steps, per_epoch);
  out.eval_steps = evaluates ? steps_of(evaluation, eval_steps.value_or(train.save_steps), per_epoch) : 0;
  out.save_at_end = save_strategy != "no";
  out.eval_at_end = evaluates && evaluation != "no";
  return out;
}

}  // namespace lockstep
