#include "lockstep/tasks/answer_file.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/row_journal.h"
#include "lockstep/session/first_row.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/answer_prompts.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/rows_progress.h"
#include "lockstep/tasks/shared_folder.h"
#include "lockstep/tasks/unheeded.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// All that the answers depend on.
Json identity_of(const AnswerFileOptions& options, int64_t batch_size, const Session& session, const Dataset& rows) {
  const SamplingOptions& sampling = options.sampling;
  Json identity = session.identity();
  identity.update({{"data", rows.fingerprint()},
                   {"media", rows.media_fingerprint()},
                   {"batch_size", batch_size},
                   {"max_new_tokens", options.max_new_tokens},
                   {"rows", options.rows.as_json()},
                   {"temperature", sampling.temperature},
                   {"top_k", sampling.top_k},
                   {"top_p", sampling.top_p},
                   {"min_p", sampling.min_p},
                   {"repetition_penalty", sampling.repetition_penalty},
                   {"no_repeat_ngram_size", sampling.no_repeat_ngram_size},
                   {"stop_words", sampling.stop_words},
                   {"skip_special_tokens", sampling.skip_special_tokens}});
  if (options.speech) {
    const SamplingOptions& drawn = options.speech->how.sampling;
    identity["speech"] = {
        options.speech->speaker, options.speech->how.max_codes, drawn.temperature, drawn.top_k, drawn.top_p,
        drawn.repetition_penalty};
  }
  return identity;
}

constexpr const char* kUnfinished = ".unfinished";

fs::path journal_of(const fs::path& output) { return output.string() + kUnfinished; }

/// Another output of that folder whose run was cut short, of the same rows and options; the newest.
std::optional<fs::path> unfinished_like(const fs::path& output, const Json& identity) {
  std::optional<fs::path> found;
  std::error_code none;
  for (auto at = fs::directory_iterator(output.parent_path(), none); !none && at != fs::directory_iterator(); ++at) {
    const fs::path name = at->path().extension() == kUnfinished ? at->path().parent_path() / at->path().stem() : "";
    if (name.empty() || (found && name < *found)) continue;
    if (identity_difference(RowJournal::identity_of_idle(at->path()), identity).empty()) found = name;
  }
  return found;
}

/// One line for each row of the file; the file gets its name when it is whole.
void write_answers(const fs::path& path, const Dataset& rows, const RowJournal& journal, Answered& figures) {
  NewFile out(path, journal_keeps_rows());
  const auto line = [&](const Json& row) { out.line(row.dump(-1, ' ', false, Json::error_handler_t::replace)); };
  const auto failed = [&](const std::string& where, const std::string& why) {
    if (figures.failed++ == 0) figures.first_failure = why;
    line(failed_row(where, why));
  };
  rows.in_file_order(
      [&](int64_t row) {
        const Json record = parse_json(journal.read(row), "journal");
        if (record.contains("error")) {
          failed(rows.where(row), record["error"].get<std::string>());
          return;
        }
        ++figures.answered;
        figures.tokens += record["tokens"].get<int64_t>();
        figures.cut += record.contains("finish_reason") ? 1 : 0;
        line(answer_row(rows.sample(row), record));
      },
      [&](const BrokenRow& row) { failed(row.where, row.where + ": " + row.why); });
  out.finish();
}

void answer_missing(Session& session, const AnswerFileOptions& options, int64_t batch_size, const Dataset& rows,
                    RowJournal& journal, const EventBus& events) {
  Job& job = session.job();
  std::vector<int64_t> order;
  for (int64_t row = 0; row < rows.size(); ++row) {
    if (!journal.holds(row)) order.push_back(row);
  }
  const auto total = static_cast<int64_t>(order.size());
  if (job.reports() && total < rows.size()) {
    events.emit(RowsKept{.how = "answered", .kept = rows.size() - total, .total = rows.size()});
  }
  RowsProgress progress(job, events, "infer", total);
  int64_t mine = 0;
  const auto keep = [&](int64_t row, const Json& record) {
    journal.append(row, record.dump(-1, ' ', false, Json::error_handler_t::replace));
    progress.reach(++mine * job.world.size);
  };
  answer_prompts(session, options, answer_slots(batch_size, rows), rows, order, keep);
  journal.seal(job.control());
  progress.finish();
}

/// With a batch size of auto: what the run that was cut short has found, else auto still.
int64_t slots_before(const AnswerFileOptions& options) {
  const fs::path there = journal_of(options.output) / "run.json";
  return options.overwrite || !fs::exists(there) ? kAutoBatch : read_json(there).value("batch_size", kAutoBatch);
}

/// Folders that are missing are made with the journal.
void require_answers_place(const fs::path& output) {
  require_file_kind("--result_path", output);
  require_folder_place("--result_path", output.has_parent_path() ? output.parent_path() : fs::path("."));
}

}  // namespace

Answered answer_file(Job& job, const AnswerFileOptions& options, const EventBus& events) {
  RunOptions run = options.run;
  run.rows_choose_adapter = !options.speech;  // a talker speaks with one
  Session session(job, run);
  std::optional<Dataset> rows;
  int64_t batch = options.batch.rows;
  RowsOfStep planned;
  together(job.control(), "opening the prompts", [&] {
    if (job.reports()) {
      require_answers_place(options.output);
      require_other_file("--result_path", options.output, options.input);
    }
    if (options.speech) (void)speaker_of(session, *options.speech);
    DatasetOptions reading = options.rows.dataset();
    reading.may_be_empty = true;
    rows.emplace(options.input, reading);
    if (batch == kAutoBatch) batch = slots_before(options);
    if (!job.reports() || !session.makes_map()) return;
    planned = longest_batch(
        *rows,
        [&](const Sample& sample) { return session.processor().prompt_features(sample, options.rows.process()); },
        options.batch.planned_rows());
  });
  agree_on(job.control(), {{"prompts", rows->fingerprint()}, {"batch size", std::to_string(batch)}});
  session.decide(
      session.inference(), planned,
      {.answer_tokens = options.max_new_tokens, .codes = options.speech ? options.speech->how.max_codes : int64_t{0}});
  session.tell_notices(events);
  for (const auto& words : unheeded_words(options, session.model())) events.emit(Notice{words});
  if (job.reports() && session.num_choices() > 1) {
    events.emit(Notice{fmt::format("rows without \"adapter\" are answered with {}; \"{}\" is the model alone",
                                   options.run.adapters.front().name, kBaseAlone)});
  }
  for (const auto& text : rows->notices()) {
    if (job.reports()) events.emit(Notice{text});
  }
  if (job.reports()) tell_first_row(session, *rows, options.rows, /*prompt=*/true, events);
  session.load();
  if (batch == kAutoBatch) batch = find_answer_slots(session, options, *rows, events);
  const Json identity = identity_of(options, batch, session, *rows);
  fs::path output = options.output;
  together(job.control(), "making the folder of finished rows", [&] {
    if (!job.reports()) return;
    if (options.output_is_usual && !options.overwrite) output = unfinished_like(output, identity).value_or(output);
    make_folders(journal_of(output));
  });
  output = from_rank_0(job.control(), output.string(), "result path");
  require_shared("--result_path", journal_of(output), job);
  RowJournal journal(journal_of(output), identity, options.overwrite, job.control());
  Answered out{.output = output, .from_nothing = journal.size() == 0};
  const auto begun = Clock::now();
  answer_missing(session, options, batch, *rows, journal, events);
  out.seconds = seconds_since(begun);
  session.tell_memory(events);
  together(job.control(), "writing answers", [&] {
    if (!job.reports()) return;
    write_answers(output, *rows, journal, out);
    journal.remove();
  });
  return out;
}

}  // namespace lockstep
