#include "lockstep/tasks/embed.h"

#include <algorithm>
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
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/rows_progress.h"
#include "lockstep/tasks/shared_folder.h"
#include "lockstep/tasks/unheeded.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr const char* kDone = "embed.json";        // what a finished folder says of itself
constexpr const char* kUnfinished = "unfinished";  // the journal, in the output folder

const char* word_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::kLast:
      return "last";
    case Pooling::kCls:
      return "cls";
    case Pooling::kMean:
      break;
  }
  return "mean";
}

const char* format_of(const EmbeddingOptions& options) { return options.safetensors ? "safetensors" : "jsonl"; }

fs::path file_of(const EmbeddingOptions& options) {
  return options.output / fmt::format("embeddings.{}", format_of(options));
}

/// All that the numbers depend on.
Json identity_of(const EmbeddingOptions& options, int64_t batch_size, const Session& session, const Dataset& rows) {
  const bool inputs = options.embedding.extent == Extent::kInputs;
  Json identity = session.identity();
  identity.update({{"data", rows.fingerprint()},
                   {"media", rows.media_fingerprint()},
                   {"stage", inputs ? "inputs" : "hidden"},
                   {"pooling", inputs ? "" : word_of(options.embedding.pooling)},
                   {"normalize", options.embedding.normalize},
                   {"batch_size", batch_size},
                   {"rows", options.rows.as_json()}});
  const auto& ends = session.processor().tokenizer().frame().after;
  if (!ends.empty()) identity["ends_texts"] = ends;
  return identity;
}

/// With a batch size of auto: what an earlier run of this folder has found, else auto still.
int64_t batch_size_before(const EmbeddingOptions& options) {
  if (options.overwrite) return kAutoBatch;
  for (const auto& path : {options.output / kDone, options.output / kUnfinished / "run.json"}) {
    if (!fs::exists(path)) continue;
    const Json there = read_json(path);
    return there.value("identity", there).value("batch_size", kAutoBatch);
  }
  return kAutoBatch;
}

/// Whether the folder holds exactly these embeddings, finished. Throws UserError(kUsage) when it holds others.
bool is_finished(const EmbeddingOptions& options, const Json& identity) {
  const fs::path done = options.output / kDone, vectors = file_of(options);
  if (options.overwrite) return false;
  if (!fs::exists(done)) {
    // Those that a run was writing when it was cut short have its finished rows beside them.
    if (!fs::exists(vectors) || fs::exists(options.output / kUnfinished)) return false;
    throw usage_error(fmt::format("{}: is there, and no {} says of which run", vectors.string(), kDone),
                      "name another --output, or give --overwrite true to replace it");
  }
  const Json there = read_json(done);
  const std::string format = there.value("format", "");
  std::string differs = identity_difference(there.value("identity", Json()), identity);
  if (format != format_of(options)) {
    differs += fmt::format("{}format: {} there, {} now", differs.empty() ? "" : "; ", format, format_of(options));
  }
  if (differs.empty())
    return fs::exists(vectors) && (!options.safetensors || fs::exists(options.output / "rows.jsonl"));
  throw UserError(ExitCode::kUsage,
                  fmt::format("{} holds finished embeddings of another run: {}", options.output.string(), differs),
                  "name another --output, or give --overwrite true to replace them");
}

/// Takes away what an earlier run has finished there, in whatever format: beside new vectors it would pass for them.
void clear_finished(const fs::path& folder) {
  if (!fs::exists(folder / kDone)) return;
  const bool in_safetensors = read_json(folder / kDone).value("format", "") == "safetensors";
  fs::remove(folder / kDone);
  fs::remove(folder / (in_safetensors ? "embeddings.safetensors" : "embeddings.jsonl"));
  if (in_safetensors) fs::remove(folder / "rows.jsonl");
}

/// The least that the vectors take, in the journal and in the file that is written from it at the end. How many tokens a
/// row has, and so how many vectors of --stage inputs, is not known yet: one of each counts.
void require_room_for_vectors(const EmbeddingOptions& options, const Dataset& rows, int64_t width) {
  constexpr int64_t kTextOfNumber = 9;  // "0.0123456," and the like: seven digits and what stands around them
  const int64_t numbers = rows.size() * width, number = sizeof(float);
  int64_t bytes = numbers * (options.safetensors ? 2 * number : number + kTextOfNumber);
  std::error_code unknown;
  const fs::path journal = options.output / kUnfinished;
  for (auto at = fs::directory_iterator(journal, unknown); !unknown && at != fs::directory_iterator(); ++at) {
    if (at->is_regular_file(unknown)) bytes -= static_cast<int64_t>(at->file_size(unknown));  // what is kept already
  }
  require_disk("--output", options.output, bytes,
               fmt::format("vectors of {} rows, {} numbers each,", rows.size(), width));
}

/// Rows of all batches in which one is missing: a batch is run whole, so that its bits are the same.
std::vector<int64_t> rows_to_do(int64_t count, int64_t batch_size, const RowJournal& journal) {
  std::vector<int64_t> order;
  for (int64_t begin = 0; begin < count; begin += batch_size) {
    const int64_t end = std::min(count, begin + batch_size);
    bool whole = true;
    for (int64_t row = begin; row < end; ++row) whole = whole && journal.holds(row);
    for (int64_t row = begin; row < end && !whole; ++row) order.push_back(row);
  }
  return order;
}

void embed_missing(Session& session, const EmbeddingOptions& options, int64_t batch_size, const Dataset& rows,
                   RowJournal& journal, const EventBus& events) {
  Job& job = session.job();
  const auto order = rows_to_do(rows.size(), batch_size, journal);
  const auto total = static_cast<int64_t>(order.size());
  if (job.reports() && journal.size() > 0) {
    events.emit(RowsKept{.how = "done", .kept = rows.size() - total, .total = rows.size()});
  }
  LoaderOptions loading = options.loader(job, batch_size);
  loading.order = order;
  Loader loader(rows, session.processor(), loading);
  RowsProgress progress(job, events, "embed", total);
  const auto keep = [&](int64_t row, const std::string& record) {
    if (!journal.holds(row)) journal.append(row, record);
    progress.reach(loader.cursor().rows);
  };
  EmbedOptions embedding = options.embedding;
  embedding.collate = session.collate();
  Embedder embedder(session.model(), session.executor(), job.control(), session.plan().gathers());
  job.control().recorder().confessing([&] {
    embedder.run(loader, embedding,
                 {.embedded = [&](const RowEmbedding& row) { keep(row.row, record_of(row)); },
                  .skipped = [&](const SkippedRow& row) { keep(row.row, record_of(row)); }});
  });
  journal.seal(job.control());
  progress.finish();
}

/// The files that a person gets, and what the folder says of itself.
EmbeddingCounts finish(const EmbeddingOptions& options, const Json& identity, const Dataset& rows, RowJournal& journal,
                       double seconds) {
  const EmbeddingCounts counts = write_embeddings(
      options.output, rows, journal,
      {.as_safetensors = options.safetensors, .per_token = options.embedding.extent == Extent::kInputs});
  write_json(options.output / kDone, {{"identity", identity},
                                      {"format", format_of(options)},
                                      {"rows", counts.rows},
                                      {"failed", counts.failed},
                                      {"tokens", counts.tokens},
                                      {"width", counts.width},
                                      {"seconds", seconds}});
  journal.remove();
  return counts;
}

}  // namespace

ProcessOptions EmbeddingOptions::process() const {
  ProcessOptions out = rows.process();
  out.ends_texts = true;
  return out;
}

LoaderOptions EmbeddingOptions::loader(const Job& job, int64_t batch_size) const {
  LoaderOptions out = rows.loader(job, run, batch_size);
  out.prompts = true;
  out.process = process();
  return out;
}

int64_t find_embedding_batch(Session& session, const EmbeddingOptions& options, const Dataset& rows,
                             const EventBus& events) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().prompt_features(sample, options.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  CollateOptions collate_options = session.collate();
  collate_options.layout = RowLayout::kPacked;
  const auto run_batch = [&](int64_t batch) {
    Batch trial = collate(std::vector<Features>(static_cast<size_t>(batch), *row), collate_options);
    std::vector<SubBatch> parts{{.flow = std::move(trial.flow), .context = {}, .modalities = trial.modalities}};
    session.executor().forward(parts, trial.modalities, options.embedding.extent);
    return int64_t{0};
  };
  return agree_batch_of(session,
                        {.row = *row,
                         .work = {.layout = RowLayout::kPacked},
                         .memory_fraction = options.batch.memory_fraction,
                         .largest = rows.size()},
                        events, run_batch);
}

Embedded embed(Job& job, const EmbeddingOptions& given, const EventBus& events) {
  Session session(job, given.run);
  EmbeddingOptions options = given;
  options.output = from_rank_0(job.control(), given.output.string(), "output folder");
  if (const std::string other = other_place_given("--output", given.output, job); !other.empty() && job.reports()) {
    events.emit(Notice{other});
  }
  Embedded out{.file = file_of(options)};
  std::optional<Dataset> rows;
  int64_t batch = options.batch.rows;
  RowsOfStep planned;
  together(job.control(), "opening the rows", [&] {
    if (job.reports()) {
      require_folder_place("--output", options.output);
      for (const char* name : {"embeddings.jsonl", "rows.jsonl"}) {
        require_other_file("--output", options.output / name, options.dataset);
      }
    }
    DatasetOptions reading = options.rows.dataset();
    reading.may_be_empty = true;
    rows.emplace(options.dataset, reading);
    if (batch == kAutoBatch) batch = batch_size_before(options);
    out.was_finished = batch != kAutoBatch && is_finished(options, identity_of(options, batch, session, *rows));
    if (out.was_finished || !job.reports()) return;
    if (!options.run.force) require_room_for_vectors(options, *rows, session.model().dims.hidden);
    if (!session.makes_map()) return;
    planned = longest_batch(
        *rows, [&](const Sample& sample) { return session.processor().prompt_features(sample, options.process()); },
        options.batch.planned_rows());
  });
  agree_on(job.control(), {{"rows", rows->fingerprint()},
                           {"finished", out.was_finished ? "yes" : "no"},
                           {"batch size", std::to_string(batch)}});
  if (out.was_finished) return out;
  session.decide(session.inference(), planned, {.layout = RowLayout::kPacked});
  session.tell_notices(events);
  for (const auto& words : unheeded_words(options, session.model())) events.emit(Notice{words});
  for (const auto& text : rows->notices()) {
    if (job.reports()) events.emit(Notice{text});
  }
  session.load();
  if (batch == kAutoBatch) batch = find_embedding_batch(session, options, *rows, events);
  const Json identity = identity_of(options, batch, session, *rows);
  together(job.control(), "clearing the output", [&] {
    if (!job.reports()) return;
    clear_finished(options.output);
    make_folders(options.output / kUnfinished);
  });
  require_shared("--output", options.output / kUnfinished, job);
  RowJournal journal(options.output / kUnfinished, identity, options.overwrite, job.control());
  const bool from_nothing = journal.size() == 0;
  const auto begun = Clock::now();
  embed_missing(session, options, batch, *rows, journal, events);
  out.seconds = from_nothing ? seconds_since(begun) : 0;
  session.tell_memory(events);
  together(job.control(), "writing embeddings", [&] {
    if (job.reports()) out.counts = finish(options, identity, *rows, journal, out.seconds);
  });
  return out;
}

}  // namespace lockstep
