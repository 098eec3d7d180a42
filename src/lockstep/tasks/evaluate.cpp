#include "lockstep/tasks/evaluate.h"

#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/not_finite.h"
#include "lockstep/session/first_row.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/session/row_pieces.h"
#include "lockstep/session/session.h"
#include "lockstep/session/unbuilt_rows.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/rows_progress.h"
#include "lockstep/tasks/unheeded.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/event_lines.h"

namespace lockstep {
namespace {

/// Why rows are missing, from the first rank that knows; of those that were never dealt out all know.
std::string first_reason(Communicator& control, const Loader& loader, const Dataset& rows) {
  const auto mine = loader.skipped_reasons();
  for (const auto& text : control.all_gather_bytes(mine.empty() ? "" : mine.front(), "rows left out")) {
    if (!text.empty()) return text;
  }
  if (rows.broken().empty()) return {};
  return fmt::format("{}: {}", rows.broken().front().where, rows.broken().front().why);
}

/// Metrics of nothing are no result. Throws the same on all ranks: the figures are the same.
void refuse_nothing(const Evaluation& found, const std::string& data, const std::string& first_skipped) {
  if (found.loss.rows > 0 || found.answers.answered > 0) return;
  throw SharedError(
      ExitCode::kData,
      fmt::format("{}: none of the {} rows could be used; the first: {}", data, found.loss.skipped, first_skipped),
      "--strict true stops at such a row");
}

/// A loss that is no number ends the run, on all ranks alike; one of nothing is told.
void judge_loss(const LossFigures& found, const EvaluationOptions& options,
                const std::function<void(const std::string&)>& tell) {
  if (found.target_tokens > 0 && !std::isfinite(found.loss)) {
    throw SharedError(ExitCode::kNumerics, fmt::format("the loss of {} rows is {}", found.rows, found.loss),
                      kNotFiniteHint);
  }
  if (found.rows == 0 || found.target_tokens > 0) return;
  const ProcessOptions process = options.rows.process();
  tell(fmt::format(
      "no token of an answer is left in any row, so there is no loss: rows have none, or are cut before it ({})",
      process.max_length > 0 ? process.limit_text() : "the length of a row"));
}

/// The rows whose loss is asked for: pieces of long texts, where they are cut into several.
std::optional<Dataset> split_rows(Session& session, const EvaluationOptions& options, const Dataset& rows,
                                  const EventBus& events) {
  if (options.rows.truncation != Truncation::kSplit) return std::nullopt;
  SplitRows made = split_long_rows(session.job(), rows, session.processor().tokenizer(),
                                   {.max_length = options.rows.max_length,
                                    .positions = session.model().dims.max_positions,
                                    .plain = !options.run.use_chat_template,
                                    .all = options.rows.taught.of == Taught::Of::kAll,
                                    .threads = options.rows.num_workers},
                                   events);
  if (session.job().reports()) {
    for (const auto& text : made.notices()) events.emit(Notice{text});
  }
  return std::move(made.rows);
}

/// As many copies of the longest row as fit while their loss is computed.
int64_t find_batch_size(Session& session, const EvaluationOptions& options, const Dataset& rows,
                        const EventBus& events) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().train_features(sample, options.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  const auto run_batch = [&](int64_t batch) {
    Batch trial = collate(std::vector<Features>(static_cast<size_t>(batch), *row), session.collate());
    const Modalities everywhere = trial.modalities;
    session.executor().forward(std::move(trial.flow), {.training = true}, everywhere, everywhere);
    return int64_t{0};
  };
  return agree_batch_of(session,
                        {.row = *row, .memory_fraction = options.batch.memory_fraction, .largest = rows.size()}, events,
                        run_batch);
}

AnswerOptions answering(const Session& session, const EvaluationOptions& options, int64_t batch,
                        std::vector<Program> programs) {
  return {
      .generate = generate_options(session, batch, options.max_new_tokens, options.rows.max_length, options.sampling),
      .rows = options.rows,
      .show = options.show,
      .metrics = options.metric.chosen(true),
      .programs = std::move(programs),
      .metric_timeout_s = options.metric.timeout_s,
      .output = options.answers_file()};
}

void tell_of_rows(const Evaluation& found, const EvaluationOptions& options, const std::string& first,
                  const EventBus& events) {
  const int64_t unusable = options.generate ? found.answers.skipped : found.loss.skipped;
  if (unusable > 0) {
    events.emit(Notice{fmt::format("{} of the rows could not be used, the first: {}", unusable, first)});
  } else if (found.loss.skipped > 0) {
    events.emit(Notice{fmt::format("{} of the rows have no loss, the first: {}", found.loss.skipped, first)});
  }
  if (const auto& answers = found.answers; answers.cut > 0) {
    events.emit(
        Notice{cut_words(answers.cut, answers.answered, options.max_new_tokens) + "; they are judged as they stand"});
  }
}

/// A mean over nothing is null.
Json number_or_null(bool there, double value) { return there ? Json(value) : Json(); }

/// Rank 0 writes; a folder that cannot be written is the same error on all ranks.
void write_figures(Job& job, const std::filesystem::path& folder, const Evaluation& found) {
  if (folder.empty()) return;
  together(job.control(), "writing the figures", [&] {
    if (job.control().rank() == 0) write_json(folder / "predict_results.json", found.json());
  });
}

constexpr const char* kAnswers = "generated_predictions.jsonl";

/// Refuses what cannot be written, or is what is read.
void make_places(const EvaluationOptions& options) {
  if (!options.output.empty()) {
    require_file_place("--output", options.output);
    require_other_file("--output", options.output, options.dataset);
  }
  if (options.output_dir.empty()) return;
  require_folder_place("--output_dir", options.output_dir);
  require_other_file("--output_dir", options.output_dir / kAnswers, options.dataset);
  std::filesystem::create_directories(options.output_dir);
}

}  // namespace

std::filesystem::path EvaluationOptions::answers_file() const {
  if (!output.empty() || output_dir.empty() || !generate) return output;
  return output_dir / kAnswers;
}

Json Evaluation::json() const {
  const bool targets = loss.target_tokens > 0;
  Json groups = Json::object();
  for (const auto& [name, share] : answers.groups) groups[name] = share;
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
  const Json values = parse_json(answers.values, "evaluation figures");
  for (const auto& item : values.items()) json[item.key()] = item.value();
  json["groups"] = groups;
  json["samples"] = samples_json(answers.samples);
  json["seconds"] = seconds;
  if (!communication.empty()) json["communication"] = communication_json(communication, communication.every_label);
  return json;
}

void EvaluationOptions::check() const {
  (void)metric.chosen(generate);
  if (!output.empty() && !generate)
    throw usage_error("--output holds answers, and none are generated", "--predict_with_generate true");
}

Evaluation evaluate(Job& job, const EvaluationOptions& options, const EventBus& events) {
  options.check();
  const auto begun = Clock::now();
  std::vector<Program> programs;
  together(job.control(), "finding metric programs", [&] {
    if (!job.reports()) return;
    programs = options.metric.found();
    make_places(options);
  });
  Session session(job, options.run);
  std::optional<Dataset> rows;
  RowsOfStep planned;
  together(job.control(), "opening the data set", [&] {
    rows.emplace(options.dataset, options.rows.dataset());
    if (!job.reports() || !session.makes_map()) return;
    planned = longest_batch(
        *rows, [&](const Sample& sample) { return session.processor().train_features(sample, options.rows.process()); },
        options.batch.planned_rows());
  });
  agree_on(job.control(), {{"data set", rows->fingerprint()}});
  session.decide(session.inference(), planned,
                 {.answer_tokens = options.generate ? options.max_new_tokens : int64_t{0}});
  session.tell_notices(events);
  for (const auto& words : unheeded_words(options, session.model())) events.emit(Notice{words});
  const auto tell = [&](const std::string& text) {
    if (job.reports() && !text.empty()) events.emit(Notice{text});
  };
  tell(rows_with_media(job, session.model(), *rows));
  for (const auto& text : rows->notices()) tell(text);
  if (job.reports()) tell_first_row(session, *rows, options.rows, /*prompt=*/false, events);
  session.load();
  const std::optional<Dataset> pieces = split_rows(session, options, *rows, events);
  const Dataset& measured = pieces ? *pieces : *rows;
  const int64_t batch =
      options.batch.is_auto() ? find_batch_size(session, options, measured, events) : options.batch.rows;
  Loader loader(measured, session.processor(), options.rows.loader(job, options.run, batch));
  Evaluation found;
  RowsProgress progress(job, events, "evaluate", measured.size());
  found.loss = evaluate_loss(session.executor(), loader, session.collate(), job.data(), job.control(),
                             {.progress = [&](int64_t done) { progress.reach(done); }});
  progress.finish();
  judge_loss(found.loss, options, tell);
  found.loss.skipped += static_cast<int64_t>(rows->broken().size());
  if (options.generate)
    found.answers = answer_rows(session, *rows, answering(session, options, batch, std::move(programs)), events);
  std::string first_skipped = found.answers.first_skipped;
  if (first_skipped.empty()) first_skipped = first_reason(job.control(), loader, *rows);
  refuse_nothing(found, join(options.dataset, ", "), first_skipped);
  session.tell_memory(events);
  found.communication = communication_of(job, options.run.comm_figures);
  if (job.reports()) tell_of_rows(found, options, first_skipped, events);
  found.seconds = seconds_since(begun);
  write_figures(job, options.output_dir, found);
  return found;
}

}  // namespace lockstep
