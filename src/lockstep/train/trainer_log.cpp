// What a logging step tells: figures agreed over ranks, and rows that could not be used.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/train/trainer.h"

namespace lockstep {

std::vector<int64_t> Trainer::gather_peak_bytes() const {
  if (!hooks_.peak_bytes) return {};
  const int64_t mine = hooks_.peak_bytes();
  const auto all = parts_.control.all_gather_bytes({reinterpret_cast<const char*>(&mine), sizeof mine}, "peak memory");
  std::vector<int64_t> bytes(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) std::memcpy(&bytes[rank], all[rank].data(), sizeof mine);
  return bytes;
}

void Trainer::log(const Figures& figures) {
  const auto steps = std::max<int64_t>(1, state_.global_step - steps_at_log_);
  const auto trained = static_cast<double>(std::max<int64_t>(1, state_.since_log.steps));
  const CommCounters now = parts_.data.counters();
  const auto each = [&](double before, double after) { return (after - before) / static_cast<double>(steps); };
  StepDone done{.step = state_.global_step,
                .max_steps = state_.max_steps,
                .epoch = state_.epoch,
                .loss = state_.since_log.loss / trained,
                .grad_norm = figures.grad_norm,
                .learning_rate = figures.learning_rate};
  if (state_.since_log.target_tokens > 0) {
    done.token_accuracy =
        static_cast<double>(state_.since_log.correct_tokens) / static_cast<double>(state_.since_log.target_tokens);
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
  done.loss_scale = loss_scale_.dynamic() ? loss_scale_.value() : 0;
  done.tokens_seen = state_.tokens_seen;
  done.samples_seen = state_.samples_seen;
  done.skipped_rows = state_.skipped_rows;
  done.peak_bytes = gather_peak_bytes();
  done.gather_wait_seconds = each(counters_at_log_.gather_wait_seconds, now.gather_wait_seconds);
  done.reduce_wait_seconds = each(counters_at_log_.reduce_wait_seconds, now.reduce_wait_seconds);
  done.gather_bytes = (now.gather_bytes - counters_at_log_.gather_bytes) / steps;
  done.reduce_bytes = (now.reduce_bytes - counters_at_log_.reduce_bytes) / steps;
  state_.log_history.push_back(
      fmt::format(R"({{"epoch": {}, "grad_norm": {}, "learning_rate": {}, "loss": {}, "token_acc": {}, "step": {}}})",
                  done.epoch, figures.updated ? fmt::format("{}", done.grad_norm) : "null", done.learning_rate,
                  done.loss, done.token_accuracy, done.step));
  report_skipped_rows();
  parts_.events.emit(done);
  state_.since_log = {};
  steps_at_log_ = state_.global_step;
  tokens_at_log_ = state_.tokens_seen;
  busy_seconds_ = busy_cpu_seconds_ = 0;
  counters_at_log_ = now;
}

/// Every rank knows how many rows were skipped anywhere, so all come here together.
void Trainer::report_skipped_rows() {
  if (state_.skipped_rows == reported_skipped_) return;
  const auto mine = parts_.loader.skipped_reasons();
  const auto reasons = parts_.control.all_gather_bytes(mine.empty() ? "" : mine.back(), "skipped rows");
  const auto one = std::find_if(reasons.begin(), reasons.end(), [](const auto& text) { return !text.empty(); });
  parts_.events.emit(
      Notice{fmt::format("{} rows could not be used so far and were skipped (--strict true stops at the first); "
                         "one of them: {}",
                         state_.skipped_rows, one == reasons.end() ? "?" : *one)});
  reported_skipped_ = state_.skipped_rows;
}

}  // namespace lockstep
