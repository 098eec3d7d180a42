// Which metrics of answers are told, and which programs measure too (docs/evaluate.md).
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/program.h"
#include "lockstep/metric/answer_metrics.h"

namespace lockstep {

struct MetricOptions {
  std::string metrics;                // "exact_match,rouge_l"; empty: all that rows allow
  std::vector<std::string> programs;  // "./my_metric.py --lang en"
  double timeout_s = 600;             // of a program
  std::string search_path;            // the folders where programs without a slash are looked for, as in PATH

  /// Throws UserError(kUsage): see choose_answer_metrics; or metrics are asked for where no answer is generated.
  std::vector<AnswerMetric> chosen(bool generates) const;
  /// Throws UserError(kUsage): see find_program. Called where programs run: another node need not have them.
  std::vector<Program> found() const;
};

}  // namespace lockstep
