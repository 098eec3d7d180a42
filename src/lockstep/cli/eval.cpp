// lockstep eval: loss, and metrics of generated answers, built in and a person's own (docs/evaluate.md).
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/batch_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/metric_flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/sampling_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/tasks/evaluate.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {

const char* const eval_summary = "measure a model on rows: loss, exact answers, ANLS, ROUGE-L, your own metrics";

namespace {

struct EvalFlags {
  RunFlags run;
  RowFlags rows;
  EvaluationOptions given;  // what a flag says as it is
  bool json = false;
  std::vector<std::string> notices;

  EvaluationOptions options(const Env& process_env) const {
    const Env env = run.with_variables(process_env);
    EvaluationOptions out = given;
    out.run = run.options(env);
    out.rows = rows.options(env);
    out.sampling.seed = out.rows.seed;
    out.metric.search_path = env.text("PATH").value_or("");
    return out;
  }
};

std::optional<EvalFlags> parse(const std::vector<std::string>& args) {
  EvalFlags flags;
  CLI::App app(eval_summary, "lockstep eval");
  app.footer(
      "Example:\n  lockstep eval --model output/v0-20260101-120000/checkpoint-300 --val_dataset eval.jsonl --nproc 2\n"
      "  lockstep eval --model my-model --val_dataset eval.jsonl --metric ./my_metric.py --output predictions.jsonl");
  add_run_flags(app, flags.run);
  app.add_option("--val_dataset,--dataset", flags.given.dataset, kRowFiles)->required()->group("Data");
  add_row_flags(app, flags.rows);
  add_batch_flags(app, "--per_device_eval_batch_size,--batch_size", "rows on one rank at a time", "Evaluation",
                  flags.given.batch);
  app.add_option("--predict_with_generate", flags.given.generate, "generate answers and measure them")
      ->capture_default_str()
      ->group("Evaluation");
  app.add_option("--max_new_tokens", flags.given.max_new_tokens, "of a generated answer")
      ->check(whole_number(1, kMostNewTokens))
      ->capture_default_str()
      ->group("Evaluation");
  add_sampling_flags(app, "Evaluation", flags.given.sampling);
  add_metric_flags(app, flags.given.metric, "Evaluation");
  app.add_option("--output,--result_path", flags.given.output, "write all rows with their answers here, as JSON lines")
      ->group("Output");
  app.add_option("--output_dir", flags.given.output_dir,
                 "a folder for both: rows in generated_predictions.jsonl, figures in predict_results.json")
      ->group("Output");
  app.add_option("--show", flags.given.show, "answers to print")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group("Output");
  app.add_flag("--json", flags.json, "one JSON object instead of a table")->group("Output");
  const UsualFlags usual = {"model",          "val_dataset", "batch_size", "predict_with_generate",
                            "max_new_tokens", "metrics",     "metric",     "output",
                            "output_dir",     "show",        "json",       "nproc",
                            "deepspeed",      "torch_dtype", "max_length"};
  OtherStacks others{.verb = "eval", .notices = {}};
  if (!parse_flags(app, args, usual, &others)) return std::nullopt;
  flags.notices = std::move(others.notices);
  flags.run.given.unsaid = std::move(others.unsaid);
  flags.options(Env()).check();
  return flags;
}

void print_table(const Evaluation& found) {
  const auto& [loss, answers, communication, seconds] = found;
  const auto line = [](const std::string& name, const std::string& value) {
    std::cout << shown_text(fmt::format("{:<16} {}\n", name, value));
  };
  line("rows", fmt::format("{}{}", loss.rows, loss.skipped > 0 ? fmt::format(" ({} skipped)", loss.skipped) : ""));
  if (loss.target_tokens > 0) {
    line("loss", fmt::format("{:.6f}", loss.loss));
    line("perplexity", fmt::format("{:.4f}", perplexity(loss.loss)));
    line("token accuracy", fmt::format("{:.4f} of {} tokens", loss.token_accuracy, loss.target_tokens));
  }
  for (const auto& metric : answers.metrics) {
    const bool exact = metric.name == "exact_match";
    line(exact ? "exact match" : metric.name,
         exact ? fmt::format("{:.4f} ({} of {})", metric.mean, answers.exact, answers.rows)
               : fmt::format("{:.4f} ({} rows)", metric.mean, metric.rows));
  }
  for (const auto& [name, share] : answers.groups) line("  " + name, fmt::format("{:.4f}", share));
  const Json values = parse_json(answers.values, "evaluation figures");
  for (const auto& item : values.items()) line(item.key(), item.value().dump());
  line("seconds", fmt::format("{:.1f}", seconds));
  for (const auto& sample : answers.samples) {
    std::cout << shown_text(fmt::format("{} {}\n    expected {} | answered {}\n", sample.exact ? "+" : "-",
                                        sample.prompt, sample.expected, sample.predicted));
  }
  for (const auto& text : communication_table(communication)) std::cout << text << "\n";
}

}  // namespace

int run_eval(const Words& args, const Host& host) {
  const auto flags = parse(args);
  if (!flags) return 0;
  const EvaluationOptions options = flags->options(host.env);
  if (const auto code = launch_verb("eval", args, options.run, host)) return *code;
  Job job = start_verb("eval", options.run, host);
  Console console(std::cerr, job, host);
  console.tell(flags->notices);
  const Evaluation found = evaluate(job, options, console.events());
  if (!job.reports() || tell_result(host, job, found.json())) return 0;
  if (flags->json) {
    std::cout << found.json().dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    print_table(found);
  }
  return 0;
}

}  // namespace lockstep
