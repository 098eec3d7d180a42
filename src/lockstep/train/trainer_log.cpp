// What a logging step tells: figures agreed over ranks, and rows that could not be used.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/train/trainer.h"

namespace lockstep {

void Trainer::note_size(const MicroBatch& micro) {
  const Tensor* ids = micro.flow.find("input_ids");
  if (ids == nullptr || ids->numel() <= largest_.area) return;
  largest_ = {.rows = static_cast<int64_t>(micro.rows.size()),
              .tokens = ids->size(1),
              .area = ids->numel(),
              .packed = !micro.row_ends.empty(),
              .modalities = micro.here};
}

std::string Trainer::largest_batch() const {
  const bool media = !(largest_.modalities == Modalities{Modality::kText});
  return fmt::format("{} row{} {} {} tokens{}", largest_.rows, largest_.rows == 1 ? "" : "s",
                     largest_.packed ? "together" : "of", largest_.tokens,
                     media ? fmt::format(" ({})", largest_.modalities.names()) : "");
}

namespace {

/// As JSON has it, which knows no numbers that are none.
std::string number_or_null(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

}  // namespace

void Trainer::log(const Figures& figures) {
  const auto steps = std::max<int64_t>(1, state_.global_step - steps_at_log_);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // every step was left out
  const auto trained = static_cast<double>(std::max<int64_t>(1, state_.since_log.steps));
  const CommCounters now = parts_.data.counters();
  const auto each = [&](double before, double after) { return (after - before) / static_cast<double>(steps); };
  StepDone done{.step = state_.global_step,
                .max_steps = state_.max_steps,
                .epoch = state_.epoch,
                .loss = state_.since_log.steps > 0 ? state_.since_log.loss / trained : kNone,
                .grad_norm = figures.grad_norm,
                .learning_rate = figures.learning_rate};
  if (state_.since_log.target_tokens > 0) {
    done.token_accuracy =
        static_cast<double>(state_.since_log.correct_tokens) / static_cast<double>(state_.since_log.target_tokens);
  }
  if (state_.since_log.talker_steps > 0) {
    done.talker_loss = state_.since_log.talker_loss / static_cast<double>(state_.since_log.talker_steps);
  }
  done.tokens_per_second = static_cast<double>(state_.tokens_seen - tokens_at_log_) / std::max(busy_seconds_, 1e-9);
  done.seconds_per_step = busy_seconds_ / static_cast<double>(steps);
  done.cpu_seconds_per_step = busy_cpu_seconds_ / static_cast<double>(steps);
  done.elapsed_seconds = seconds_since(started_);
  done.remaining_seconds = done.elapsed_seconds / static_cast<double>(state_.global_step - first_step_) *
                           static_cast<double>(state_.max_steps - state_.global_step);
  for (const auto& [component, ratio] : options_.rate_ratios) {
    done.component_rates.emplace_back(component_name(component), figures.learning_rate * ratio);
  }
  done.loss_scale = loss_scale_.scales() ? loss_scale_.value() : 0;
  done.tokens_seen = state_.tokens_seen;
  done.tokens_computed = state_.tokens_computed;
  done.samples_seen = state_.samples_seen;
  done.skipped_rows = state_.skipped_rows;
  MemoryMeasured memory;
  if (hooks_.measure_memory) memory = hooks_.measure_memory(largest_batch());
  memory.step = done.step;
  memory.max_steps = done.max_steps;
  for (const RankMemory& rank : memory.ranks) {
    done.peak_bytes.push_back(rank.peak_bytes());
    if (!memory.predicted.empty()) done.predicted_bytes.push_back(rank.predicted_bytes(memory.predicted));
  }
  done.gather_wait_seconds = each(counters_at_log_.gather_wait_seconds, now.gather_wait_seconds);
  done.reduce_wait_seconds = each(counters_at_log_.reduce_wait_seconds, now.reduce_wait_seconds);
  done.gather_bytes = (now.gather_bytes - counters_at_log_.gather_bytes) / steps;
  done.reduce_bytes = (now.reduce_bytes - counters_at_log_.reduce_bytes) / steps;
  state_.log_history.push_back(
      fmt::format(R"({{"epoch": {}, "grad_norm": {}, "learning_rate": {}, "loss": {}, "token_acc": {}, "step": {}}})",
                  done.epoch, number_or_null(figures.updated ? done.grad_norm : kNone), done.learning_rate,
                  number_or_null(done.loss), done.token_accuracy, done.step));
  report_skipped_rows();
  parts_.events.emit(done);
  if (!memory.ranks.empty()) parts_.events.emit(memory);
  state_.since_log = {};
  steps_at_log_ = state_.global_step;
  tokens_at_log_ = state_.tokens_seen;
  busy_seconds_ = busy_cpu_seconds_ = 0;
  counters_at_log_ = now;
}

/// Every rank knows how many rows were skipped anywhere, so all come here together.
void Trainer::report_skipped_rows() {
  if (state_.skipped_rows == reported_skipped_) return;
  const auto unusable = parts_.loader.skipped_reasons();
  const std::string mine = unusable.empty() ? reader_.last_refused() : unusable.back();
  const auto reasons = parts_.control.all_gather_bytes(mine, "skipped rows");
  const auto one = std::find_if(reasons.begin(), reasons.end(), [](const auto& text) { return !text.empty(); });
  parts_.events.emit(
      Notice{fmt::format("{} rows could not be used so far and were skipped (--strict true stops at the first); "
                         "one of them: {}",
                         state_.skipped_rows, one == reasons.end() ? "?" : *one)});
  reported_skipped_ = state_.skipped_rows;
}

}  // namespace lockstep
