#include "lockstep/cli/metric_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/number_bounds.h"

namespace lockstep {

void add_metric_flags(CLI::App& app, MetricOptions& options, const char* group) {
  app.add_option(
         "--metrics", options.metrics,
         "of answers: exact_match,anls,rouge_l,rouge_1,rouge_2,bleu_4,multiple_choice (default: all that rows allow)")
      ->group(group);
  app.add_option("--metric", options.programs,
                 "a program that measures too, \"./my_metric.py --lang en\": it gets all answers as JSON lines on "
                 "standard input and prints a JSON object; may be given again (docs/evaluate.md)")
      ->group(group);
  app.add_option("--metric_timeout", options.timeout_s, "seconds that such a program may take")
      ->check(real_number({.above = 0, .most = kMostSeconds}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace lockstep
