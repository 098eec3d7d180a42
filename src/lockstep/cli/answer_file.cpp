#include "lockstep/cli/answer_file.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/cli/answers.h"
#include "lockstep/cli/model_fingerprint.h"
#include "lockstep/cli/new_file.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/dataset_prompts.h"
#include "lockstep/infer/row_journal.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/watch/console_sink.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// A list of frames, as the row may have had it.
Json video_json(const Video& video) {
  if (video.fps == 0) return video.frames;
  return {{"frames", video.frames}, {"fps", video.fps}};
}

/// A line of the answers' file, under ms-swift's names.
Json answer_row(const Sample& sample, const std::string& response) {
  Json messages = Json::array();
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  for (size_t i = 0; i + (answered ? 1 : 0) < sample.messages.size(); ++i) {
    messages.push_back({{"role", sample.messages[i].role}, {"content", sample.messages[i].content}});
  }
  messages.push_back({{"role", "assistant"}, {"content", response}});
  const std::string expected = expected_response(sample);
  Json row = {
      {"response", response}, {"labels", expected.empty() ? Json(nullptr) : Json(expected)}, {"messages", messages}};
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  return row;
}

/// All that the answers depend on.
Json identity_of(const InferFlags& flags, const Session& session, const Dataset& rows) {
  const SamplingOptions& sampling = flags.sampling;
  Json identity = {{"model", model_fingerprint(flags.run.model)},
                   {"data", rows.fingerprint()},
                   {"dtype", std::string(dtype_name(session.dtype()))},
                   {"batch_size", flags.batch.size},
                   {"max_new_tokens", flags.max_new_tokens},
                   {"rows", flags.rows.as_json()},
                   {"temperature", sampling.temperature},
                   {"top_k", sampling.top_k},
                   {"top_p", sampling.top_p},
                   {"repetition_penalty", sampling.repetition_penalty}};
  const std::string left_out = left_out_reason(session.model());  // rows with pictures fail then
  if (!left_out.empty()) identity["left_out"] = left_out;
  return identity;
}

struct Counts {
  int64_t answered = 0, failed = 0, tokens = 0;
  std::string first_failure;
};

/// One line for each row of the file; the file gets its name when it is whole.
Counts write_answers(const fs::path& path, const Dataset& rows, const RowJournal& journal) {
  Counts counts;
  NewFile out(path);
  const auto line = [&](const Json& row) { out.line(row.dump(-1, ' ', false, Json::error_handler_t::replace)); };
  const auto failed = [&](const std::string& where, const std::string& why) {
    if (counts.failed++ == 0) counts.first_failure = why;
    line({{"response", nullptr}, {"where", where}, {"error", why}});
  };
  rows.in_file_order(
      [&](int64_t row) {
        const Json record = Json::parse(journal.read(row));
        if (record.contains("error")) {
          failed(rows.where(row), record["error"].get<std::string>());
          return;
        }
        ++counts.answered;
        counts.tokens += record["tokens"].get<int64_t>();
        line(answer_row(rows.sample(row), record["response"].get<std::string>()));
      },
      [&](const BrokenRow& row) { failed(row.where, row.where + ": " + row.why); });
  out.finish();
  return counts;
}

void answer_missing(Session& session, const InferFlags& flags, const Env& env, const Dataset& rows,
                    RowJournal& journal) {
  Job& job = session.job();
  std::vector<int64_t> order;
  for (int64_t row = 0; row < rows.size(); ++row) {
    if (!journal.holds(row)) order.push_back(row);
  }
  const auto total = static_cast<int64_t>(order.size());
  if (job.reports() && total < rows.size()) {
    std::cerr << fmt::format("going on: {} of {} rows are answered\n", rows.size() - total, rows.size());
  }
  const int64_t slots = std::min(flags.batch.size, std::max<int64_t>(1, rows.size()));
  GenerateOptions options = generate_options(session, slots, flags.max_new_tokens);
  options.sampling = flags.sampling;
  DatasetPrompts prompts(rows, session.processor(),
                         {.rank = job.world.rank,
                          .world = job.world.size,
                          .strict = flags.rows.strict,
                          .num_workers = flags.rows.num_workers,
                          .patience_s = flags.run.data_patience_s(),
                          .process = flags.rows.process(),
                          .order = order},
                         job.control().recorder());
  ConsoleSink console(std::cerr, console_options(env, 2, /*quiet=*/false));
  int64_t mine = 0, shown = 0;
  const auto keep = [&](int64_t row, const Json& record) {
    journal.append(row, record.dump(-1, ' ', false, Json::error_handler_t::replace));
    ++mine;  // the other ranks are about as far
    const int64_t done = std::min(mine * job.world.size, total);
    if (job.reports() && done != shown) console.on(Progress{.phase = "infer", .done = done, .total = total});
    shown = done;
  };
  size_t told = 0;
  const auto next = [&] {
    auto prompt = prompts.next();
    for (; told < prompts.skipped().size(); ++told) {
      keep(prompts.skipped()[told].row, {{"error", prompts.skipped()[told].why}});
    }
    return prompt;
  };
  const Tokenizer& tokenizer = session.processor().tokenizer();
  Generator generator(session.model(), session.executor(), job.control(), session.plan().gathers());
  job.control().recorder().confessing([&] {
    generator.run(next, options, [&](const Generated& answer) {
      keep(answer.row, {{"response", tokenizer.decode(answer.tokens, true)}, {"tokens", answer.tokens.size()}});
    });
  });
  journal.seal(job.control());
}

/// With --batch_size auto: what the run that was cut short has found, else auto still.
int64_t slots_before(const InferFlags& flags) {
  const fs::path there = fs::path(flags.output + ".unfinished") / "run.json";
  return flags.overwrite || !fs::exists(there) ? kAutoBatch : read_json(there).value("batch_size", kAutoBatch);
}

/// As many slots as fit when all of them hold the longest prompt and a whole answer.
int64_t find_slots(Session& session, const InferFlags& flags, const Dataset& rows) {
  const auto row = longest_row(
      rows, [&](const Sample& sample) { return session.processor().prompt_features(sample, flags.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  const ModelDims& dims = session.model().dims;
  const int64_t a_token = 2 * dims.layers * dims.kv_heads * dims.head_dim * dtype_bytes(session.dtype());
  return agree_batch_size(session.job(), flags.batch.memory_fraction, rows.size(), [&](int64_t batch) {
    const GenerateOptions options = generate_options(session, batch, flags.max_new_tokens);
    DecodeSlots slots(dims, options);
    for (int64_t i = 0; i < batch; ++i) slots.admit({i, *row});
    for (int pass = 0; pass < 2 && !slots.empty(); ++pass) {
      auto parts = slots.parts();
      session.executor().forward(parts, {.rows = true, .image = pass == 0 && !row->media.empty()});
      slots.take(parts);
    }
    return batch * flags.max_new_tokens * a_token;  // what the answers will hold besides
  });
}

}  // namespace

void answer_file(Session& session, InferFlags flags, const Env& env) {
  Job& job = session.job();
  std::optional<Dataset> rows;
  together(job.control(), "opening the prompts", [&] {
    DatasetOptions options = flags.rows.dataset(env);
    options.may_be_empty = true;
    rows.emplace(std::vector<std::string>{flags.input}, options);
    if (flags.batch.size == kAutoBatch) flags.batch.size = slots_before(flags);
  });
  agree_on(job.control(), {{"prompts", rows->fingerprint()}, {"batch size", std::to_string(flags.batch.size)}});
  if (flags.batch.size == kAutoBatch) flags.batch.size = find_slots(session, flags, *rows);
  const Json identity = identity_of(flags, session, *rows);
  RowJournal journal(flags.output + ".unfinished", identity, flags.overwrite, job.control());
  const bool from_nothing = journal.size() == 0;
  const auto begun = Clock::now();
  answer_missing(session, flags, env, *rows, journal);
  const double seconds = seconds_since(begun);
  together(job.control(), "writing answers", [&] {
    if (!job.reports()) return;
    const Counts counts = write_answers(flags.output, *rows, journal);
    journal.remove();
    const double rate = static_cast<double>(counts.tokens) / std::max(seconds, 1e-6);
    std::cout << fmt::format("{} answers, {} tokens in {:.1f} s{} -> {}\n", counts.answered, counts.tokens, seconds,
                             from_nothing ? fmt::format(" ({:.1f} tokens/s)", rate) : "", flags.output);
    if (counts.failed == 0) return;
    std::cout << fmt::format(
        "notice: {} rows could not be used and have an \"error\" (--strict true stops at the first): {}\n",
        counts.failed, counts.first_failure);
  });
}

}  // namespace lockstep
