#include "lockstep/cli/eval.h"

#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/answers.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/comm/together.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {

const char* const eval_summary = "measure a model on rows: loss, token accuracy, exact answers";

namespace {

struct EvalFlags {
  RunFlags run;
  RowFlags rows;
  std::vector<std::string> val_dataset;
  int64_t batch_size = 8, max_new_tokens = 64, show = 8;
  bool generate = true, json = false;
};

std::optional<EvalFlags> parse(const std::vector<std::string>& args) {
  EvalFlags flags;
  CLI::App app(eval_summary, "lockstep eval");
  app.footer(
      "Example:\n  lockstep eval --model output/v0-20260101-120000/checkpoint-300 --val_dataset eval.jsonl --nproc 2");
  add_run_flags(app, flags.run);
  app.add_option("--val_dataset,--dataset", flags.val_dataset, "JSONL or JSON files")->required()->group("Data");
  add_row_flags(app, flags.rows);
  app.add_option("--per_device_eval_batch_size", flags.batch_size, "rows on one rank at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Evaluation");
  app.add_option("--predict_with_generate", flags.generate, "generate answers and count exact ones")
      ->capture_default_str()
      ->group("Evaluation");
  app.add_option("--max_new_tokens", flags.max_new_tokens, "of a generated answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Evaluation");
  app.add_option("--show", flags.show, "answers to print")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("Output");
  app.add_flag("--json", flags.json, "one JSON object instead of a table")->group("Output");
  if (!parse_flags(app, args)) return std::nullopt;
  flags.run.dtype();
  flags.run.zero();
  return flags;
}

Json as_json(const LossFigures& loss, const AnswerFigures& answers, double seconds) {
  Json groups = Json::object(), samples = Json::array();
  for (const auto& [name, share] : answers.groups) groups[name] = share;
  for (const auto& sample : answers.samples) {
    samples.push_back({{"prompt", sample.prompt},
                       {"expected", sample.expected},
                       {"predicted", sample.predicted},
                       {"image", sample.image_path},
                       {"exact", sample.exact}});
  }
  return {{"loss", loss.loss},
          {"token_acc", loss.token_accuracy},
          {"target_tokens", loss.target_tokens},
          {"rows", loss.rows},
          {"skipped", loss.skipped},
          {"exact_match", answers.rows > 0 ? Json(answers.exact_match()) : Json(nullptr)},
          {"exact_rows", answers.exact},
          {"answered_rows", answers.rows},
          {"groups", groups},
          {"samples", samples},
          {"seconds", seconds}};
}

void print_table(const LossFigures& loss, const AnswerFigures& answers, double seconds) {
  const auto line = [](const std::string& name, const std::string& value) {
    std::cout << fmt::format("{:<16} {}\n", name, value);
  };
  line("rows", fmt::format("{}{}", loss.rows, loss.skipped > 0 ? fmt::format(" ({} skipped)", loss.skipped) : ""));
  line("loss", fmt::format("{:.6f}", loss.loss));
  line("token accuracy", fmt::format("{:.4f} of {} tokens", loss.token_accuracy, loss.target_tokens));
  if (answers.rows > 0)
    line("exact match", fmt::format("{:.4f} ({} of {})", answers.exact_match(), answers.exact, answers.rows));
  for (const auto& [name, share] : answers.groups) line("  " + name, fmt::format("{:.4f}", share));
  line("seconds", fmt::format("{:.1f}", seconds));
  for (const auto& sample : answers.samples) {
    std::cout << fmt::format("{} {}\n    expected {} | answered {}\n", sample.exact ? "+" : "-", sample.prompt,
                             sample.expected, sample.predicted);
  }
}

}  // namespace

int run_eval(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("eval", args, flags->run, env)) return *code;
  Job job = start_job("eval", flags->run, env);
  const auto begun = Clock::now();
  Session session(job, flags->run.model, flags->run.dtype(), [&](Dtype compute) {
    return PlanOptions{.world = job.world.size, .zero = flags->run.zero(), .compute = compute, .training = false};
  });
  std::optional<Dataset> rows;
  together(job.control(), "opening the data set", [&] {
    rows.emplace(flags->val_dataset, DatasetOptions{.strict = flags->rows.strict,
                                                    .root_image_dir = env.text("ROOT_IMAGE_DIR").value_or("")});
  });
  agree_on(job.control(), {{"data set", rows->fingerprint()}});
  session.load();
  Loader loader(*rows, session.processor(),
                {.batch_size = flags->batch_size,
                 .rank = job.world.rank,
                 .world = job.world.size,
                 .shuffle = false,
                 .strict = flags->rows.strict,
                 .num_workers = flags->rows.num_workers,
                 .patience_s = flags->run.data_patience_s(),
                 .process = flags->rows.process()});
  LossFigures loss = evaluate_loss(session.executor(), loader, session.collate(), job.data(), job.control());
  loss.skipped += static_cast<int64_t>(rows->broken().size());
  AnswerFigures answers;
  if (flags->generate) {
    answers = exact_answers(session, *rows,
                            {.generate = generate_options(session, flags->batch_size, flags->max_new_tokens),
                             .process = flags->rows.process(),
                             .strict = flags->rows.strict,
                             .show = flags->show});
  }
  const CommunicationFigures communication = communication_of(job, flags->run);
  if (!job.reports()) return 0;
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
