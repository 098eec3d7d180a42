#include "lockstep/tasks/open_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/tasks/answer_prompts.h"
#include "lockstep/tasks/unheeded.h"

namespace lockstep {
namespace {

RunOptions checked(RunOptions run) {
  const auto refuse = [](const std::string& flag, const std::string& what) {
    throw usage_error(fmt::format("{}: {}", flag, what),
                      "lockstep infer and lockstep embed run rows of a file on several ranks");
  };
  if (run.nproc > 1) refuse(fmt::format("--nproc {}", run.nproc), "a model that stays open is one process's");
  if (run.max_restarts > 0)
    refuse(fmt::format("--max_restarts {}", run.max_restarts), "there are no ranks to start again");
  run.rows_choose_adapter = true;
  return run;
}

/// Whatever has started this process: the model's world is this process.
Job alone(const RunOptions& run) { return start_job(checked(run), Env(), {.program = "lockstep"}); }

}  // namespace

OpenModel::OpenModel(RunOptions run, const EventBus& events)
    : job_(alone(run)), session_(job_, checked(std::move(run))) {
  session_.decide(session_.inference());
  session_.tell_notices(events);
  session_.load();
}
OpenModel::~OpenModel() = default;

std::vector<Json> OpenModel::answer(const Dataset& rows, AnswerFileOptions options, const EventBus& events) {
  options.run = session_.options();
  if (options.speech) {
    options.run.require_one_adapter();  // a talker speaks with one
    (void)speaker_of(session_, *options.speech);
  }
  for (const auto& words : unheeded_words(options, session_.model())) events.emit(Notice{words});
  const int64_t batch =
      options.batch.is_auto() ? find_answer_slots(session_, options, rows, events) : options.batch.rows;
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<Json> records(order.size()), out;
  answer_prompts(session_, options, answer_slots(batch, rows), rows, order,
                 [&](int64_t row, const Json& record) { records.at(static_cast<size_t>(row)) = record; });
  rows.in_file_order(
      [&](int64_t row) {
        const Json& record = records.at(static_cast<size_t>(row));
        const bool failed = record.contains("error");
        out.push_back(failed ? failed_row(rows.where(row), record["error"].get<std::string>())
                             : answer_row(rows.sample(row), record));
      },
      [&](const BrokenRow& row) { out.push_back(failed_row(row.where, row.where + ": " + row.why)); });
  return out;
}

RowVectors OpenModel::embed(const Dataset& rows, EmbeddingOptions options, const EventBus& events) {
  options.run = session_.options();
  options.run.require_one_adapter();
  for (const auto& words : unheeded_words(options, session_.model())) events.emit(Notice{words});
  const int64_t batch =
      options.batch.is_auto() ? find_embedding_batch(session_, options, rows, events) : options.batch.rows;
  std::vector<int64_t> place(static_cast<size_t>(rows.size()));  // of a whole row among all
  RowVectors out;
  int64_t at = 0;
  rows.in_file_order([&](int64_t row) { place[static_cast<size_t>(row)] = at++; },
                     [&](const BrokenRow& row) { out.errors[at++] = row.where + ": " + row.why; });
  Loader loader(rows, session_.processor(), options.loader(job_, batch));
  EmbedOptions embedding = options.embedding;
  embedding.collate = session_.collate();
  Embedder embedder(session_.model(), session_.executor(), job_.control(), session_.plan().gathers());
  embedder.run(
      loader, embedding,
      {.embedded =
           [&](const RowEmbedding& row) {
             out.width = row.width;
             out.rows.push_back(place.at(static_cast<size_t>(row.row)));
             out.tokens.push_back(row.tokens);
             out.values.insert(out.values.end(), row.values.begin(), row.values.end());
           },
       .skipped = [&](const SkippedRow& row) { out.errors[place.at(static_cast<size_t>(row.row))] = row.why; }});
  return out;
}

}  // namespace lockstep
