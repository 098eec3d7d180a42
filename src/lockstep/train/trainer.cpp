#include "lockstep/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/together.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr uint64_t kNoise = 0x9E3779B97F4A7C15ULL;  // keys of noise are others than those of what is dropped

/// The sum over ranks of a few numbers, in one call.
template <size_t N>
std::array<double, N> sum_over_ranks(Communicator& control, std::array<double, N> values, const char* label) {
  if (control.size() > 1) control.all_reduce_sum(view_memory(values.data(), {N}, Dtype::kF64), label);
  return values;
}

/// 0 for one that is not there. Read together, so that the host waits for a GPU once.
template <size_t N>
std::array<double, N> read_numbers(const std::array<Tensor, N>& scalars) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> there;
  for (const Tensor& x : scalars) {
    if (!x.defined()) continue;
    const Tensor number = x.to(at::kDouble);
    there.push_back(there.empty() ? number : sent_to(number, there.front().device()));
  }
  std::array<double, N> values{};
  if (there.empty()) return values;
  const Tensor together = at::stack(there).cpu();
  const double* next = together.const_data_ptr<double>();
  for (size_t i = 0; i < N; ++i) values[i] = scalars[i].defined() ? *next++ : 0.0;
  return values;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, const TrainOptions& options, TrainerHooks hooks, CollateOptions collate,
                 int64_t rows_per_epoch, TrainerState initial)
    : parts_(parts),
      options_(options),
      hooks_(std::move(hooks)),
      admission_(hooks_.fits ? std::make_optional<Admission>(hooks_.fits, collate.layout == RowLayout::kPacked)
                             : std::nullopt),
      reader_(parts.loader, parts.data, parts.control,
              {.collate = collate,
               .plan_hash = parts.plan.hash(),
               .stop_wanted = hooks_.stop_wanted,
               .admission = admission_ ? &*admission_ : nullptr,
               .strict = options.strict}),
      loss_scale_(parts.plan.options.compute == Dtype::kF16, options.loss_scaling),
      rows_per_epoch_(rows_per_epoch),
      recorder_(parts.control.recorder()),
      state_(std::move(initial)) {
  state_.max_steps = total_steps(options, parts.loader.batches_per_epoch());
  state_.num_train_epochs = options.num_train_epochs;
  state_.logging_steps = options.logging_steps;
  state_.save_steps = options.save_steps;
  state_.eval_steps = options.eval_steps;
  state_.train_batch_size = options.per_device_train_batch_size;
  state_.rows_per_step = rows_per_batch() * options.gradient_accumulation_steps;
  set_schedule();
}

int64_t Trainer::rows_per_batch() const { return options_.per_device_train_batch_size * parts_.data.size(); }

void Trainer::set_schedule() {
  schedule_ = {.kind = options_.schedule,
               .learning_rate = options_.learning_rate,
               .warmup_steps = warmup_steps_of(state_.max_steps, options_.warmup_ratio, options_.warmup_steps),
               .total_steps = state_.max_steps,
               .min_lr_rate = options_.min_lr_rate,
               .shape = options_.schedule_shape};
}

void Trainer::restore(const TrainerState& state) {
  const TrainerState fresh = std::exchange(state_, state);
  const EpochRows rows{
      .whole = rows_per_epoch_, .end = parts_.loader.epoch_end(state.cursor.rows), .per_batch = rows_per_batch()};
  const auto end_of = [&](double epochs) {
    TrainOptions by_epochs = options_;
    by_epochs.num_train_epochs = epochs;
    return state.global_step + steps_left(by_epochs, state.cursor, rows);
  };
  state_.max_steps = options_.max_steps > 0 ? options_.max_steps : end_of(options_.num_train_epochs);
  if (options_.max_epochs > 0) state_.max_steps = std::min(state_.max_steps, end_of(options_.max_epochs));
  state_.num_train_epochs = fresh.num_train_epochs;
  state_.logging_steps = fresh.logging_steps;
  state_.save_steps = fresh.save_steps;
  state_.eval_steps = fresh.eval_steps;
  state_.train_batch_size = fresh.train_batch_size;
  state_.rows_per_step = fresh.rows_per_step;
  state_.order = fresh.order;
  state_.seed = fresh.seed;
  state_.world = fresh.world;
  state_.zero_stage = fresh.zero_stage;
  state_.launch_id = fresh.launch_id;
  state_.compare_by(fresh.best_of);
  set_schedule();
  loss_scale_.restore(state.loss_scale);
  parts_.loader.seek(state.cursor);
}

TrainOutcome Trainer::run() {
  TrainOutcome outcome;
  started_ = Clock::now();
  first_step_ = steps_at_log_ = state_.global_step;
  tokens_at_log_ = state_.tokens_seen;
  reported_skipped_ = state_.skipped_rows;
  const int64_t first_sample = state_.samples_seen;
  counters_at_log_ = parts_.data.counters();
  recorder_.confessing([&] {
    if (options_.eval_on_start && !evaluate(/*may_be_best=*/false)) return end_here(outcome);
    if (state_.evaluation_due) after_step(outcome, /*evaluates=*/true);
  });
  while (state_.global_step < state_.max_steps && !outcome.interrupted && !outcome.stopped_early) {
    recorder_.confessing([&] { advance(outcome); });
  }
  outcome.steps = state_.global_step - first_step_;
  outcome.samples = state_.samples_seen - first_sample;
  outcome.train_loss = state_.total_loss / static_cast<double>(std::max<int64_t>(1, state_.loss_steps));
  outcome.seconds = seconds_since(started_);
  return outcome;
}

void Trainer::advance(TrainOutcome& outcome) {
  const auto begun = Clock::now();
  const double cpu_begun = process_cpu_seconds();
  Window window = reader_.next(options_.gradient_accumulation_steps);
  if (window.stop) return end_here(outcome);
  const Figures figures = step(window);
  count(window, figures);
  recorder_.step_done(state_.global_step);
  busy_seconds_ += seconds_since(begun);
  busy_cpu_seconds_ += process_cpu_seconds() - cpu_begun;
  const bool last = state_.global_step == state_.max_steps;
  const bool first = state_.global_step == 1 && options_.logging_first_step;
  if (options_.logs && (first || last || is_due(options_.logging_steps, options_.log_epochs))) log(figures);
  const bool due = is_due(options_.eval_steps, options_.eval_epochs) && !is_delayed();
  after_step(outcome, due || (last && options_.eval_at_end));
}

/// Its evaluation and its checkpoint, and whether it was the last.
void Trainer::after_step(TrainOutcome& outcome, bool evaluates) {
  const bool last = state_.global_step == state_.max_steps;
  state_.evaluation_due = evaluates && !evaluate(/*may_be_best=*/true);
  if (state_.evaluation_due) return end_here(outcome);
  const bool better = evaluates && state_.best_metric && state_.best_global_step == state_.global_step;
  const bool none_was_better = last && options_.save_best && !state_.best_metric;
  if (none_was_better)
    parts_.events.emit(Notice{"no evaluation had a finite value, so none was the best: the last step is saved"});
  const bool saves = is_due(options_.save_steps, options_.save_epochs) || (last && options_.save_at_end) ||
                     (better && options_.save_best) || none_was_better;
  if (saves) count_save();
  if (saves) save(outcome);
  if (last) return;
  if (saves)
    stop_early(outcome, options_.early_stop_interval, state_.saves_without_better,
               "checkpoints saw no better evaluation");
  if (evaluates) {
    stop_early(outcome, options_.early_stopping_patience, state_.evaluations_without_better,
               "evaluations were not better");
  }
  if (outcome.stopped_early && !saves && options_.save_at_end) save(outcome);
}

void Trainer::stop_early(TrainOutcome& outcome, int64_t patience, int64_t in_vain, std::string_view what) {
  if (outcome.stopped_early || patience == 0 || in_vain < patience || !state_.best_metric) return;
  outcome.stopped_early = true;
  parts_.events.emit(
      Notice{fmt::format("step {}: the run ends here, as the last {} {} than {} of step {}", state_.global_step,
                         in_vain, what, *state_.best_metric, state_.best_global_step)});
}

/// Counted before a checkpoint is written, which keeps it. Source: ms-swift 4.6 EarlyStopCallback.
void Trainer::count_save() {
  if (options_.early_stop_interval == 0 || !state_.best_metric) return;
  const bool better = state_.best_global_step > state_.best_step_at_save;
  state_.saves_without_better = better ? 0 : state_.saves_without_better + 1;
  state_.best_step_at_save = state_.best_global_step;
}

/// A wish to stop is agreed on with the rows of a step: those are not trained, and come first when the run goes on.
void Trainer::end_here(TrainOutcome& outcome) {
  outcome.interrupted = true;
  if (state_.global_step > first_step_ && saved_step_ != state_.global_step) save(outcome);
}

Trainer::Figures Trainer::step(Window& window) {
  if (window.target_tokens == 0) {
    parts_.events.emit(Notice{fmt::format("step {}: none of its {} rows has a token to train on, so it changes nothing",
                                          state_.global_step + 1, window.rows)});
    ++state_.updates;
    return {};
  }
  return update(accumulate(window));
}

/// Forward and backward of every micro-batch: gradients stand in the store, summed over ranks. The loss is normalised
/// once, by the tokens of the whole step on all ranks, so that no split of the rows changes it; that of speech likewise,
/// by its codes.
Trainer::Sums Trainer::accumulate(Window& window) {
  const Context context{.training = true,
                        .loss_weight = loss_scale_.value() / static_cast<double>(window.target_tokens),
                        .speech_loss_weight = loss_scale_.value() * options_.talker_loss_weight /
                                              static_cast<double>(std::max<int64_t>(1, window.speech_targets)),
                        .loss_chunk = options_.loss_chunk,
                        .label_smoothing = options_.label_smoothing};
  parts_.executor.grads().clear();
  std::vector<TrainInput> inputs;
  double computed = 0;
  for (MicroBatch& micro : window.micro_batches) {
    note_size(micro);
    if (const Tensor* ids = micro.flow.find("input_ids")) computed += static_cast<double>(ids->numel());
    inputs.push_back({std::move(micro.flow), context, micro.here, micro.anywhere});
    if (parts_.plan.drops()) inputs.back().context.dropout_keys = row_keys(micro, 0);
    if (options_.neftune_noise_alpha > 0) {
      inputs.back().context.noise = {options_.neftune_noise_alpha, row_keys(micro, kNoise), micro.lengths};
    }
    if (parts_.plan.drops()) inputs.back().context.row_ends = micro.row_ends;
  }
  const TrainOutput out = parts_.executor.train(inputs);
  const auto mine =
      read_numbers<4>({parts_.executor.grads().local_sum_of_squares(), out.loss, out.correct, out.speech_loss});
  const auto sums = sum_over_ranks<5>(parts_.control, {mine[0], mine[1], mine[2], mine[3], computed}, "step figures");
  const double scale = loss_scale_.value();
  return {.squares = sums[0],
          .loss = (sums[1] + sums[3]) / scale,
          .talker_loss = sums[3] / scale / options_.talker_loss_weight,
          .correct = static_cast<int64_t>(sums[2]),
          .computed = static_cast<int64_t>(sums[4])};
}

/// A row's own in each step, whichever rank has it and beside whatever rows.
std::vector<uint64_t> Trainer::row_keys(const MicroBatch& micro, uint64_t use) const {
  std::vector<uint64_t> keys;
  for (const int64_t row : micro.rows) {
    uint64_t key = 14695981039346656037ULL ^ use;
    for (const uint64_t part : {static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(state_.global_step),
                                static_cast<uint64_t>(row)}) {
      key = (key ^ part) * 1099511628211ULL;
      key ^= key >> 32;
    }
    keys.push_back(key);
  }
  return keys;
}

Trainer::Figures Trainer::update(const Sums& sums) {
  const double scale = loss_scale_.value();
  const bool finite = std::isfinite(sums.squares) && std::isfinite(sums.loss);
  Figures figures{
      .loss = sums.loss, .talker_loss = sums.talker_loss, .correct = sums.correct, .computed = sums.computed};
  figures.learning_rate = schedule_.at(state_.updates);
  figures.grad_norm = std::sqrt(sums.squares) / scale;
  if (!finite && !loss_scale_.scales()) report_not_finite(sums);
  if (!loss_scale_.update(!finite)) {
    parts_.events.emit(
        Notice{fmt::format("step {}: float16 gradients overflow at loss scale {:g}; the step is skipped, "
                           "the scale is now {:g}",
                           state_.global_step + 1, scale, loss_scale_.value())});
    return figures;
  }
  // The factor of torch.nn.utils.clip_grad_norm_.
  const double clip =
      options_.max_grad_norm > 0 ? std::min(1.0, options_.max_grad_norm / (figures.grad_norm + 1e-6)) : 1.0;
  recorder_.enter_phase(Phase::kStep);
  parts_.adamw.step(figures.learning_rate, scale / clip);
  ++state_.updates;
  figures.updated = true;
  return figures;
}

void Trainer::report_not_finite(const Sums& sums) const {
  const auto all =
      parts_.control.all_gather_bytes(parts_.executor.grads().first_not_finite(), "first gradient that is not finite");
  std::string where = "no gradient: it arises when they are summed";
  for (size_t rank = all.size(); rank-- > 0;) {
    if (!all[rank].empty()) where = fmt::format("{}, made by rank {}", all[rank], rank);
  }
  throw SharedError(
      ExitCode::kNumerics,
      fmt::format("step {}: loss {}, gradient norm {}; the first gradient that is not finite is {}",
                  state_.global_step + 1, sums.loss, std::sqrt(sums.squares), where),
      fmt::format("this step was not applied: {}; try a smaller --learning_rate, more --warmup_ratio, a "
                  "smaller --max_grad_norm, or look at the rows of this step",
                  state_.updates == 0 ? "the weights are those that were loaded"
                                      : fmt::format("the weights are as {} earlier step{} left them, which "
                                                    "may be what went wrong",
                                                    state_.updates, state_.updates == 1 ? "" : "s")));
}

void Trainer::count(const Window& window, const Figures& figures) {
  ++state_.global_step;
  state_.cursor = window.after;
  state_.epoch = static_cast<double>(window.after.epoch) +
                 static_cast<double>(window.after.rows) /
                     static_cast<double>(std::max({int64_t{1}, rows_per_epoch_, window.after.rows}));
  state_.tokens_seen += window.input_tokens;
  state_.tokens_computed += figures.computed;
  state_.samples_seen += window.rows;
  state_.skipped_rows += window.skipped;
  state_.loss_scale = loss_scale_.state();
  if (!figures.updated) return;
  state_.total_loss += figures.loss;
  ++state_.loss_steps;
  state_.since_log.loss += figures.loss;
  ++state_.since_log.steps;
  state_.since_log.correct_tokens += figures.correct;
  state_.since_log.target_tokens += window.target_tokens;
  if (window.speech_targets == 0) return;
  state_.since_log.talker_loss += figures.talker_loss;
  ++state_.since_log.talker_steps;
}

/// `epochs`: at their ends instead, where the cursor stands before the next one's first row.
bool Trainer::is_due(int64_t every, bool epochs) const {
  return epochs ? state_.cursor.rows == 0 : every > 0 && state_.global_step % every == 0;
}

/// Source: transformers 5.23 trainer_callback.py, DefaultFlowCallback.
bool Trainer::is_delayed() const {
  const double reached = options_.eval_epochs ? state_.epoch : static_cast<double>(state_.global_step);
  return reached < options_.eval_delay;
}

/// False: it was given up for a wish to stop.
bool Trainer::evaluate(bool may_be_best) {
  if (!hooks_.evaluate) return true;
  const PhaseScope scope(recorder_, Phase::kEvaluate);
  auto evaluated = hooks_.evaluate(state_.global_step);
  if (!evaluated) return false;
  EvalDone& done = *evaluated;
  done.epoch = state_.epoch;
  parts_.events.emit(done);
  if (std::isfinite(done.loss)) {  // else it is no JSON
    state_.log_history.push_back(fmt::format(R"({{"epoch": {}, "eval_loss": {}, "eval_token_acc": {}, "step": {}}})",
                                             state_.epoch, done.loss, done.token_accuracy, done.step));
  }
  if (!may_be_best) return true;
  const double judged = hooks_.judge ? hooks_.judge(done) : done.loss;
  if (std::isfinite(judged)) {
    state_.judge(judged, options_.greater_is_better);
  } else if (state_.best_metric) {
    ++state_.evaluations_without_better;
  }
  return true;
}

void Trainer::save(TrainOutcome& outcome) {
  if (!hooks_.save) return;
  const PhaseScope scope(recorder_, Phase::kSave);
  const CheckpointSaved saved = hooks_.save(state_);
  state_.saved_as(saved.path);
  outcome.last_checkpoint = saved.path;
  saved_step_ = state_.global_step;
  parts_.events.emit(saved);
}

}  // namespace lockstep
