// The flags of evaluation that eval and sft share: which metrics are told, and which programs measure too.
#pragma once

#include <string>
#include <vector>

#include "lockstep/metric/answer_metrics.h"
#include "lockstep/metric/program.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct MetricFlags {
  std::string metrics;
  std::vector<std::string> programs;
  double timeout_s = 600;

  /// Throws UserError(kUsage): see choose_answer_metrics; or metrics are asked for where no answer is generated.
  std::vector<AnswerMetric> chosen(bool generates) const;
  /// Throws UserError(kUsage): see find_program. Called where programs run: another node need not have them.
  std::vector<Program> found() const;
};

void add_metric_flags(CLI::App& app, MetricFlags& flags, const char* group);

}  // namespace lockstep
