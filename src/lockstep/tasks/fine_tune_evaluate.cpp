// A fine-tuning run's evaluation: its loss, and with predict_with_generate its answers.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/not_finite.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/tasks/fine_tune_run.h"
#include "lockstep/tasks/rows_progress.h"
#include "lockstep/train/evaluator.h"

namespace lockstep {

std::optional<EvalDone> FineTuneRun::evaluate(int64_t step) {
  const auto begun = Clock::now();
  const auto given_up = [&] {
    notice(fmt::format("step {}: stopping, so its evaluation is given up; it is made when the run goes on", step));
    return std::nullopt;
  };
  const int64_t total = val_rows_->size();
  RowsProgress progress(job_, events_, "evaluate", total);
  const EvaluateOptions options{.loss_chunk = train_options_.loss_chunk,
                                .label_smoothing = train_options_.label_smoothing,
                                .talker_loss_weight = train_options_.talker_loss_weight,
                                .progress = [&](int64_t rows) { progress.reach(rows); },
                                .stop_wanted = options_.stop_wanted};
  // Made for this evaluation: the rows that a loader has ready would wait in memory through all of training.
  Loader loader(*val_rows_, session_->processor(), loader_options(options_.per_device_eval_batch_size, false));
  const LossFigures figures =
      evaluate_loss(session_->executor(), loader, collate(), job_.data(), job_.control(), options);
  if (figures.stopped) return given_up();
  progress.finish();
  EvalDone done{.step = step, .num_samples = figures.rows, .loss = std::nan(""), .token_accuracy = -1};
  if (figures.target_tokens > 0) {
    done.loss = figures.loss;
    done.token_accuracy = figures.token_accuracy;
    done.talker_loss = figures.talker_loss;
    done.metrics.emplace_back("perplexity", perplexity(figures.loss));
    if (!std::isfinite(figures.loss)) {
      notice(fmt::format("the loss of the evaluation is {}, and the run goes on; {}", figures.loss, kNotFiniteHint));
    }
  } else if (figures.rows > 0) {
    notice(fmt::format("the evaluation has no loss: none of its {} rows has a token that is learnt", total));
  } else {
    notice(
        fmt::format("the evaluation has no loss: none of its {} rows could be used (lockstep eval says why)", total));
  }
  if (options_.predict_with_generate && !evaluate_answers(done)) return given_up();
  done.seconds = seconds_since(begun);
  return done;
}

namespace {

/// By the names that logs have, without "eval_".
std::vector<std::pair<std::string, double>> measured(const EvalDone& done) {
  std::vector<std::pair<std::string, double>> out{{"loss", done.loss}};
  if (done.token_accuracy >= 0) out.emplace_back("token_acc", done.token_accuracy);
  if (done.talker_loss >= 0) out.emplace_back("talker_loss", done.talker_loss);
  if (done.exact_match >= 0) out.emplace_back("exact_match", done.exact_match);
  out.insert(out.end(), done.metrics.begin(), done.metrics.end());
  return out;
}

}  // namespace

/// What --metric_for_best_model names. Answers are scored on one rank, which tells the others.
double FineTuneRun::judge(const EvalDone& done) {
  const std::string name = options_.judged_by();
  if (name == "loss") return done.loss;
  std::string value;
  together(job_.control(), "judging an evaluation", [&] {
    if (!job_.reports()) return;
    std::vector<std::string> names;
    for (auto [one, number] : measured(done)) {
      std::ranges::replace(one, '-', '_');
      if (one == name) value = fmt::format("{:.17g}", number);
      names.push_back(one);
    }
    // Of tokens that are learnt, of which there were none.
    const std::set<std::string> of_loss{"token_acc", "talker_loss", "perplexity"};
    if (value.empty() && of_loss.contains(name)) value = "nan";
    if (!value.empty()) return;
    throw usage_error(fmt::format("--metric_for_best_model {}: the evaluation measured {}",
                                  options_.metric_for_best_model, join(names, ", ")),
                      "name one of these");
  });
  return std::stod(from_rank_0(job_.control(), value, "what an evaluation is judged by"));
}

/// False: given up, as some rank wished to stop.
bool FineTuneRun::evaluate_answers(EvalDone& done) {
  AnswerFigures answers =
      answer_rows(*session_, *val_rows_,
                  {.generate = generate_options(*session_, options_.per_device_eval_batch_size, options_.max_new_tokens,
                                                options_.rows.max_length, options_.sampling),
                   .rows = options_.rows,
                   .metrics = options_.metric.chosen(true),
                   .programs = programs_,
                   .metric_timeout_s = options_.metric.timeout_s,
                   .stop_wanted = options_.stop_wanted},
                  events_);
  if (answers.stopped) return false;
  const NamedValues values = named_values(answers);
  for (const auto& [name, value] : values.numbers) {
    if (name == "exact_match") {
      done.exact_match = value;
    } else {
      done.metrics.emplace_back(name, value);
    }
  }
  for (const auto& [name, text] : values.others) {
    notice(fmt::format("the metric {} is no number and is not logged: {}", name, text));
  }
  done.groups = std::move(answers.groups);
  done.samples = std::move(answers.samples);
  return true;
}

}  // namespace lockstep
