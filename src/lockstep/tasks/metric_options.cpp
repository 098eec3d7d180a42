#include "lockstep/tasks/metric_options.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<AnswerMetric> MetricOptions::chosen(bool generates) const {
  auto out = choose_answer_metrics(metrics);
  if (generates) return out;
  const std::string hint = "--predict_with_generate true";
  if (!programs.empty()) throw usage_error("--metric measures answers, and none are generated", hint);
  if (!metrics.empty() && !out.empty())
    throw usage_error("--metrics " + metrics + " measures answers, and none are generated", hint);
  return out;
}

std::vector<Program> MetricOptions::found() const {
  std::vector<Program> out;
  out.reserve(programs.size());
  for (const auto& text : programs) out.push_back(find_program("--metric", text, search_path));
  return out;
}

}  // namespace lockstep
