#include "lockstep/cli/embed.h"

#include <filesystem>
#include <iostream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/embed_flags.h"
#include "lockstep/cli/embedding_output.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/model_fingerprint.h"
#include "lockstep/cli/session.h"
#include "lockstep/comm/together.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/watch/console_sink.h"

namespace lockstep {

const char* const embed_summary = "turn rows of text and pictures into vectors";

namespace {
namespace fs = std::filesystem;

constexpr const char* kDone = "embed.json";        // what a finished folder says of itself
constexpr const char* kUnfinished = "unfinished";  // the journal, in the output folder

/// All that the numbers depend on.
Json identity_of(const EmbedFlags& flags, const Session& session, const Dataset& rows) {
  Json identity = {{"model", model_fingerprint(flags.run.model)},
                   {"data", rows.fingerprint()},
                   {"dtype", std::string(dtype_name(session.dtype()))},
                   {"stage", flags.stage},
                   {"pooling", flags.stage == "inputs" ? "" : flags.pooling},
                   {"normalize", flags.normalize},
                   {"batch_size", flags.batch.size},
                   {"rows", flags.rows.as_json()}};
  const std::string left_out = left_out_reason(session.model());  // rows with pictures fail then
  if (!left_out.empty()) identity["left_out"] = left_out;
  return identity;
}

/// With --batch_size auto: what an earlier run of this folder has found, else auto still.
int64_t batch_size_before(const EmbedFlags& flags) {
  if (flags.overwrite) return kAutoBatch;
  for (const auto& path : {flags.output / kDone, flags.output / kUnfinished / "run.json"}) {
    if (!fs::exists(path)) continue;
    const Json there = read_json(path);
    return there.value("identity", there).value("batch_size", kAutoBatch);
  }
  return kAutoBatch;
}

/// As many copies of the longest row as fit.
int64_t find_batch_size(Session& session, const EmbedFlags& flags, const Dataset& rows) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().prompt_features(sample, flags.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  CollateOptions collate_options = session.collate();
  collate_options.layout = RowLayout::kPacked;
  return agree_batch_size(session.job(), flags.batch.memory_fraction, rows.size(), [&](int64_t batch) {
    Batch trial = collate(std::vector<Features>(static_cast<size_t>(batch), *row), collate_options);
    std::vector<Part> parts{{.flow = std::move(trial.flow), .context = {}, .image = trial.has_image}};
    session.executor().forward(parts, {.rows = true, .image = trial.has_image}, flags.options().extent);
    return int64_t{0};
  });
}

/// Whether the folder holds exactly these embeddings, finished. Throws UserError(kUsage) when it holds others.
bool is_finished(const EmbedFlags& flags, const Json& identity) {
  const fs::path done = flags.output / kDone;
  if (flags.overwrite || !fs::exists(done)) return false;
  const Json there = read_json(done);
  if (there.value("identity", Json()) == identity && there.value("format", "") == flags.format) return true;
  throw UserError(
      ExitCode::kUsage,
      fmt::format("{} holds finished embeddings of another run (its {} says which)", flags.output.string(), kDone),
      "name another --output, or give --overwrite true to replace them");
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

void embed_missing(Session& session, const EmbedFlags& flags, const Dataset& rows, RowJournal& journal,
                   const ConsoleOptions& console_options) {
  Job& job = session.job();
  const auto order = rows_to_do(rows.size(), flags.batch.size, journal);
  const auto total = static_cast<int64_t>(order.size());
  if (job.reports() && journal.size() > 0) {
    std::cerr << fmt::format("going on: {} of {} rows are done\n", rows.size() - total, rows.size());
  }
  Loader loader(rows, session.processor(),
                {.batch_size = flags.batch.size,
                 .rank = job.world.rank,
                 .world = job.world.size,
                 .strict = flags.rows.strict,
                 .num_workers = flags.rows.num_workers,
                 .patience_s = flags.run.data_patience_s(),
                 .process = flags.rows.process(),
                 .prompts = true,
                 .order = order});
  ConsoleSink console(std::cerr, console_options);
  int64_t told = 0;
  const auto keep = [&](int64_t row, const std::string& record) {
    if (!journal.holds(row)) journal.append(row, record);
    const int64_t done = loader.cursor().rows;
    if (job.reports() && done != told) console.on(Progress{.phase = "embed", .done = done, .total = total});
    told = done;
  };
  EmbedOptions options = flags.options();
  options.collate = session.collate();
  Embedder embedder(session.model(), session.executor(), job.control(), session.plan().gathers());
  job.control().recorder().confessing([&] {
    embedder.run(loader, options,
                 {.embedded = [&](const RowEmbedding& row) { keep(row.row, record_of(row)); },
                  .skipped = [&](const SkippedRow& row) { keep(row.row, record_of(row)); }});
  });
  journal.seal(job.control());
}

/// `seconds` of the work; 0: some of it was done by an earlier run.
void finish(const EmbedFlags& flags, const Json& identity, const Dataset& rows, RowJournal& journal, double seconds) {
  const EmbeddingCounts counts = write_embeddings(flags.output, rows, journal, flags.format == "safetensors");
  write_json(flags.output / kDone, {{"identity", identity},
                                    {"format", flags.format},
                                    {"rows", counts.rows},
                                    {"failed", counts.failed},
                                    {"tokens", counts.tokens},
                                    {"width", counts.width},
                                    {"seconds", seconds}});
  journal.remove();
  const std::string pace =
      seconds > 0 ? fmt::format(" in {:.1f} s ({:.1f} tokens/s)", seconds, static_cast<double>(counts.tokens) / seconds)
                  : "";
  std::cout << fmt::format("{} rows, {} tokens{} -> {}\n", counts.rows - counts.failed, counts.tokens, pace,
                           (flags.output / ("embeddings." + flags.format)).string());
  if (counts.failed > 0) {
    std::cout << fmt::format(
        "notice: {} rows could not be used and have an \"error\" (--strict true stops at the first): {}\n",
        counts.failed, counts.first_failure);
  }
}

}  // namespace

int run_embed(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse_embed_flags(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("embed", args, flags->run, env)) return *code;
  Job job = start_job("embed", flags->run, env);
  Session session(job, flags->run.model, flags->run, Session::inference(job, flags->run));
  std::optional<Dataset> rows;
  bool finished = false;
  together(job.control(), "opening the rows", [&] {
    DatasetOptions options = flags->rows.dataset(env);
    options.may_be_empty = true;
    rows.emplace(flags->dataset, options);
    if (flags->batch.size == kAutoBatch) flags->batch.size = batch_size_before(*flags);
    finished = flags->batch.size != kAutoBatch && is_finished(*flags, identity_of(*flags, session, *rows));
  });
  agree_on(job.control(), {{"rows", rows->fingerprint()},
                           {"finished", finished ? "yes" : "no"},
                           {"batch size", std::to_string(flags->batch.size)}});
  if (finished) {
    if (job.reports()) {
      std::cout << fmt::format("{} holds all of it already; --overwrite true makes it anew\n", flags->output.string());
    }
    return 0;
  }
  session.load();
  if (flags->batch.size == kAutoBatch) flags->batch.size = find_batch_size(session, *flags, *rows);
  const Json identity = identity_of(*flags, session, *rows);
  together(job.control(), "clearing the output", [&] {
    if (job.reports()) fs::remove(flags->output / kDone);
  });
  RowJournal journal(flags->output / kUnfinished, identity, flags->overwrite, job.control());
  const bool from_nothing = journal.size() == 0;
  const auto begun = Clock::now();
  embed_missing(session, *flags, *rows, journal, console_options(env, 2, /*quiet=*/false));
  const double seconds = from_nothing ? seconds_since(begun) : 0;
  together(job.control(), "writing embeddings", [&] {
    if (job.reports()) finish(*flags, identity, *rows, journal, seconds);
  });
  tell_communication(job, flags->run, std::cerr);
  return 0;
}

}  // namespace lockstep
