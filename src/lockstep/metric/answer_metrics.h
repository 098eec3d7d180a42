// The table of metrics that look at one answer at a time, and their means over rows.
//
// Example:
//   AnswerMeans means(choose_answer_metrics("exact_match,rouge_l"));
//   means.add("a red cat", {"red cat"});
//   for (const auto& [name, mean, rows] : means.results()) …
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/metric/answer_scores.h"

namespace lockstep {

struct AnswerMetric {
  const char* name;
  bool (*applies)(const References& references);  // whether it is defined for a row with these answers
  double (*score)(std::string_view answer, const References& references);
};

/// exact_match, anls, rouge_l, rouge_1, rouge_2, bleu_4, multiple_choice.
const std::vector<AnswerMetric>& answer_metrics();

/// Those named, "exact_match,rouge_l"; all for an empty text. loss, perplexity and token_acc are measured always and
/// may be named too. Throws UserError(kUsage) with the nearest name for an unknown one.
std::vector<AnswerMetric> choose_answer_metrics(const std::string& names);

struct MetricMean {
  std::string name;
  double mean = 0;
  int64_t rows = 0;  // that it is defined for
};

class AnswerMeans {
 public:
  explicit AnswerMeans(std::vector<AnswerMetric> metrics);
  /// A row without references changes nothing. Sums depend on the order of rows alone.
  void add(std::string_view answer, const References& references);
  /// Metrics that some row has.
  std::vector<MetricMean> results() const;

 private:
  std::vector<AnswerMetric> metrics_;
  std::vector<double> sums_;
  std::vector<int64_t> rows_;
};

}  // namespace lockstep
