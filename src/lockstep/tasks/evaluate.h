// Loss over a data set, and metrics of the model's own answers (docs/evaluate.md).
//
// Example:
//   const Evaluation found = evaluate(job, {.run = {.model = "m"}, .dataset = {"rows.jsonl"}}, events);
//   std::cout << found.loss.loss << " " << found.answers.exact_match() << "\n";
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"
#include "lockstep/infer/sampler.h"
#include "lockstep/session/batch_search.h"
#include "lockstep/session/row_options.h"
#include "lockstep/tasks/metric_options.h"
#include "lockstep/tasks/predictions.h"
#include "lockstep/train/evaluator.h"

namespace lockstep {

struct EvaluationOptions {
  RunOptions run;
  RowOptions rows;
  std::vector<std::string> dataset;  // JSONL or JSON files
  BatchSize batch;                   // on one rank at a time
  bool generate = true;              // answers too, and their metrics
  int64_t max_new_tokens = 64, show = 8;
  SamplingOptions sampling;
  MetricOptions metric;
  std::filesystem::path output;      // a file for all rows with their answers; empty: none
  std::filesystem::path output_dir;  // a folder for both, answers and figures; empty: none

  /// Where the rows go: `output`, or generated_predictions.jsonl of the folder; empty: nowhere.
  std::filesystem::path answers_file() const;

  /// Throws UserError(kUsage): answers are asked of, and none are generated.
  void check() const;
};

struct Evaluation {
  LossFigures loss;
  AnswerFigures answers;
  CommunicationFigures communication;
  double seconds = 0;

  /// All of it as one JSON object, named as docs/evaluate.md has it. A mean over nothing is null.
  Json json() const;
};

/// `events` has sinks on the reporting rank only. Throws UserError, also when no row could be used. Collective.
Evaluation evaluate(Job& job, const EvaluationOptions& options, const EventBus& events);

}  // namespace lockstep
