#include "lockstep/cli/metric_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<AnswerMetric> MetricFlags::chosen(bool generates) const {
  auto out = choose_answer_metrics(metrics);
  if (generates) return out;
  const std::string hint = "--predict_with_generate true";
  if (!programs.empty()) throw usage_error("--metric measures answers, and none are generated", hint);
  if (!metrics.empty() && !out.empty())
    throw usage_error("--metrics " + metrics + " measures answers, and none are generated", hint);
  return out;
}

std::vector<Program> MetricFlags::found() const {
  std::vector<Program> out;
  out.reserve(programs.size());
  for (const auto& text : programs) out.push_back(find_program(text));
  return out;
}

void add_metric_flags(CLI::App& app, MetricFlags& flags, const char* group) {
  app.add_option("--metrics", flags.metrics,
                 "of answers: exact_match,anls,rouge_l,multiple_choice (default: all that rows allow)")
      ->group(group);
  app.add_option("--metric", flags.programs,
                 "a program that measures too, \"./my_metric.py --lang en\": it gets all answers as JSON lines on "
                 "standard input and prints a JSON object; may be given again (docs/evaluate.md)")
      ->group(group);
  app.add_option("--metric_timeout", flags.timeout_s, "seconds that such a program may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
}

}  // namespace lockstep
