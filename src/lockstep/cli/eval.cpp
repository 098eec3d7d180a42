#include "lockstep/cli/eval.h"

#include <iostream>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/answers.h"
#include "lockstep/cli/batch_search.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/metric_flags.h"
#include "lockstep/cli/unbuilt_rows.h"
#include "lockstep/comm/together.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {

const char* const eval_summary = "measure a model on rows: loss, exact answers, ANLS, ROUGE-L, your own metrics";

namespace {

struct EvalFlags {
  RunFlags run;
  RowFlags rows;
  std::vector<std::string> val_dataset;
  int64_t max_new_tokens = 64, show = 8;
  BatchFlags batch;
  bool generate = true, json = false;
  MetricFlags metric;
  std::vector<AnswerMetric> metrics;  // chosen
  std::string output;
};

std::optional<EvalFlags> parse(const std::vector<std::string>& args) {
  EvalFlags flags;
  CLI::App app(eval_summary, "lockstep eval");
  app.footer(
      "Example:\n  lockstep eval --model output/v0-20260101-120000/checkpoint-300 --val_dataset eval.jsonl --nproc 2\n"
      "  lockstep eval --model my-model --val_dataset eval.jsonl --metric ./my_metric.py --output predictions.jsonl");
  add_run_flags(app, flags.run);
  app.add_option("--val_dataset,--dataset", flags.val_dataset, "JSONL or JSON files")->required()->group("Data");
  add_row_flags(app, flags.rows);
  add_batch_flags(app, "--per_device_eval_batch_size,--batch_size", "rows on one rank at a time", "Evaluation",
                  flags.batch);
  app.add_option("--predict_with_generate", flags.generate, "generate answers and measure them")
      ->capture_default_str()
      ->group("Evaluation");
  app.add_option("--max_new_tokens", flags.max_new_tokens, "of a generated answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Evaluation");
  add_metric_flags(app, flags.metric, "Evaluation");
  app.add_option("--output", flags.output, "write all rows with their answers here, as JSON lines")->group("Output");
  app.add_option("--show", flags.show, "answers to print")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("Output");
  app.add_flag("--json", flags.json, "one JSON object instead of a table")->group("Output");
  if (!parse_flags(app, args)) return std::nullopt;
  flags.run.dtype();
  flags.run.zero();
  flags.metrics = flags.metric.chosen(flags.generate);
  if (!flags.output.empty() && !flags.generate)
    throw usage_error("--output holds answers, and none are generated", "--predict_with_generate true");
  return flags;
}

/// A mean over nothing is null.
Json number_or_null(bool there, double value) { return there ? Json(value) : Json(); }

Json as_json(const LossFigures& loss, const AnswerFigures& answers, double seconds) {
  const bool targets = loss.target_tokens > 0;
  Json groups = Json::object(), samples = Json::array();
  for (const auto& [name, share] : answers.groups) groups[name] = share;
  for (const auto& sample : answers.samples) {
    samples.push_back({{"prompt", sample.prompt},
                       {"expected", sample.expected},
                       {"predicted", sample.predicted},
                       {"image", sample.image_path},
                       {"exact", sample.exact}});
  }
  Json json = {{"loss", number_or_null(targets, loss.loss)},
               {"perplexity", number_or_null(targets, perplexity(loss.loss))},
               {"token_acc", number_or_null(targets, loss.token_accuracy)},
               {"target_tokens", loss.target_tokens},
               {"rows", loss.rows},
               {"skipped", loss.skipped},
               {"exact_match", nullptr},
               {"exact_rows", answers.exact},
               {"answered_rows", answers.rows}};
  for (const auto& metric : answers.metrics) json[metric.name] = metric.mean;
  const Json values = Json::parse(answers.values);
  for (const auto& item : values.items()) json[item.key()] = item.value();
  json["groups"] = groups;
  json["samples"] = samples;
  json["seconds"] = seconds;
  return json;
}

void print_table(const LossFigures& loss, const AnswerFigures& answers, double seconds) {
  const auto line = [](const std::string& name, const std::string& value) {
    std::cout << fmt::format("{:<16} {}\n", name, value);
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
  const Json values = Json::parse(answers.values);
  for (const auto& item : values.items()) line(item.key(), item.value().dump());
  line("seconds", fmt::format("{:.1f}", seconds));
  for (const auto& sample : answers.samples) {
    std::cout << fmt::format("{} {}\n    expected {} | answered {}\n", sample.exact ? "+" : "-", sample.prompt,
                             sample.expected, sample.predicted);
  }
}

AnswerOptions answer_options(const Session& session, const EvalFlags& flags, std::vector<Program> programs) {
  return {.generate = generate_options(session, flags.batch.size, flags.max_new_tokens),
          .process = flags.rows.process(),
          .strict = flags.rows.strict,
          .num_workers = flags.rows.num_workers,
          .patience_s = flags.run.data_patience_s(),
          .show = flags.show,
          .metrics = flags.metrics,
          .programs = std::move(programs),
          .metric_timeout_s = flags.metric.timeout_s,
          .output = flags.output,
          .notice = [](const std::string& text) { std::cerr << "note: " << text << std::endl; }};
}

/// Why rows are missing, from the first rank that knows.
std::string first_reason(Communicator& control, const Loader& loader) {
  const auto mine = loader.skipped_reasons();
  for (const auto& text : control.all_gather_bytes(mine.empty() ? "" : mine.front(), "rows left out")) {
    if (!text.empty()) return text;
  }
  return {};
}

/// Metrics of nothing are no result. Throws the same on all ranks: the figures are the same.
void refuse_nothing(const LossFigures& loss, const AnswerFigures& answers, const std::string& data,
                    const std::string& first_skipped) {
  if (loss.rows > 0 || answers.answered > 0) return;
  throw SharedError(
      ExitCode::kData,
      fmt::format("{}: none of the {} rows could be used; the first: {}", data, loss.skipped, first_skipped),
      "--strict true stops at such a row");
}

/// As many copies of the longest row as fit while their loss is computed.
int64_t find_batch_size(Session& session, const EvalFlags& flags, const Dataset& rows) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().train_features(sample, flags.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  return agree_batch_size(session.job(), flags.batch.memory_fraction, rows.size(), [&](int64_t batch) {
    Batch trial = collate(std::vector<Features>(static_cast<size_t>(batch), *row), session.collate());
    const Presence everywhere{.rows = true, .image = trial.has_image};
    session.executor().forward(std::move(trial.flow), {.training = true}, everywhere, everywhere);
    return int64_t{0};
  });
}

}  // namespace

int run_eval(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("eval", args, flags->run, env)) return *code;
  Job job = start_job("eval", flags->run, env);
  const auto begun = Clock::now();
  std::vector<Program> programs;
  together(job.control(), "finding metric programs", [&] {
    if (job.reports()) programs = flags->metric.found();
  });
  Session session(job, flags->run.model, flags->run, Session::inference(job, flags->run));
  std::optional<Dataset> rows;
  together(job.control(), "opening the data set", [&] { rows.emplace(flags->val_dataset, flags->rows.dataset(env)); });
  agree_on(job.control(), {{"data set", rows->fingerprint()}});
  const std::string media = rows_with_media(job, session.model(), *rows);
  if (!media.empty() && job.reports()) std::cerr << "note: " << media << std::endl;
  session.load();
  if (flags->batch.size == kAutoBatch) flags->batch.size = find_batch_size(session, *flags, *rows);
  Loader loader(*rows, session.processor(),
                {.batch_size = flags->batch.size,
                 .rank = job.world.rank,
                 .world = job.world.size,
                 .shuffle = false,
                 .strict = flags->rows.strict,
                 .num_workers = flags->rows.num_workers,
                 .patience_s = flags->run.data_patience_s(),
                 .process = flags->rows.process()});
  const auto broken = static_cast<int64_t>(rows->broken().size());
  LossFigures loss = evaluate_loss(session.executor(), loader, session.collate(), job.data(), job.control());
  loss.skipped += broken;
  AnswerFigures answers;
  if (flags->generate) answers = answer_rows(session, *rows, answer_options(session, *flags, std::move(programs)));
  std::string first_skipped = answers.first_skipped;
  if (first_skipped.empty()) first_skipped = first_reason(job.control(), loader);
  refuse_nothing(loss, answers, join(flags->val_dataset, ", "), first_skipped);
  const CommunicationFigures communication = communication_of(job, flags->run);
  if (!job.reports()) return 0;
  const int64_t unusable = flags->generate ? answers.skipped : loss.skipped;
  if (unusable > 0) {
    std::cerr << fmt::format("note: {} of the rows could not be used, the first: {}\n", unusable, first_skipped);
  } else if (loss.skipped > 0) {
    std::cerr << fmt::format("note: {} of the rows have no loss, the first: {}\n", loss.skipped, first_skipped);
  }
  const double seconds = seconds_since(begun);
  if (flags->json) {
    Json json = as_json(loss, answers, seconds);
    if (!communication.empty()) json["communication"] = communication_json(communication, communication.every_label);
    std::cout << json.dump(2) << "\n";
  } else {
    print_table(loss, answers, seconds);
    for (const auto& line : communication_table(communication)) std::cout << line << "\n";
  }
  return 0;
}

}  // namespace lockstep
