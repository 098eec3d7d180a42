// The rows of an evaluation with the model's answers: scored, and written as JSON lines for metric programs and for
// --output. docs/evaluate.md lists the fields. Rank 0 alone has them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"
#include "lockstep/data/dataset.h"
#include "lockstep/infer/generator.h"
#include "lockstep/metric/answer_metrics.h"
#include "lockstep/metric/program_run.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

struct AnswerFigures {
  int64_t rows = 0, exact = 0;                         // rows with an expected answer
  int64_t answered = 0, skipped = 0;                   // of all: answered at all, and rows that could not be used
  int64_t cut = 0;                                     // of those answered: not at their end; the reporting rank
  std::string first_skipped;                           // why, of the first of them
  std::vector<MetricMean> metrics;                     // those chosen that some row has
  std::string values = "{}";                           // of metric programs: a JSON object
  std::vector<std::pair<std::string, double>> groups;  // exact match a group, by name; rank 0
  std::vector<SamplePrediction> samples;               // the first `show` rows; rank 0
  bool stopped = false;                                // by a wish, before all were answered: no figures

  double exact_match() const { return rows == 0 ? -1.0 : static_cast<double>(exact) / static_cast<double>(rows); }
};

/// "2 of the 8 answers did not come to their end: --max_new_tokens 64 cut them, or the model's positions"
std::string cut_words(int64_t cut, int64_t answered, int64_t max_new_tokens);

/// The answers that a row accepts, the trained one first; empty when it has none.
References references_of(const Sample& sample);

/// A line of the rows: row, where, prompt, response, label, images, videos, group, metadata; a row that could not be
/// used has "error" in the place of response and label.
Json prediction_row(const Sample& sample, const std::string& response);

class Predictions {
 public:
  struct Options {
    std::vector<AnswerMetric> metrics;
    int64_t show = 0;
    bool skip_special_tokens = false;
    bool keep_text = false;     // all rows for --output
    InputFile* rows = nullptr;  // answered rows for programs; none: nobody wants them
  };
  Predictions(const Dataset& dataset, const Tokenizer& tokenizer, Options options);

  /// All rows in input order: answered ones, and others with why they could not be used (by row). Throws
  /// UserError(kData).
  void add_all(const std::vector<Generated>& answers, const std::map<int64_t, std::string>& skipped);

  const AnswerFigures& figures() const { return figures_; }
  const std::string& text() const { return text_; }

 private:
  void add_answer(const Generated& answer);
  void add_unusable(Json line, const std::string& why);

  const Dataset& dataset_;
  const Tokenizer& tokenizer_;
  Options options_;
  AnswerMeans means_;
  std::map<std::string, std::pair<int64_t, int64_t>> groups_;  // exact, rows
  AnswerFigures figures_;
  std::string text_;
};

}  // namespace lockstep
