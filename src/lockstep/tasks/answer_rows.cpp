#include "lockstep/tasks/answer_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/gather_nested.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/dataset_prompts.h"
#include "lockstep/metric/program_values.h"
#include "lockstep/tasks/metric_programs.h"
#include "lockstep/tasks/rows_progress.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

using Skipped = std::map<int64_t, std::string>;

/// What eval and sft print beside the metrics: a program's value of such a name gets the program in front.
std::vector<std::string> taken_names() {
  std::vector<std::string> names = {"loss",
                                    "perplexity",
                                    "token_acc",
                                    "target_tokens",
                                    "rows",
                                    "skipped",
                                    "seconds",
                                    "samples",
                                    "groups",
                                    "exact_rows",
                                    "runtime",
                                    "step",
                                    "samples_per_second",
                                    "answered_rows",
                                    "epoch",
                                    "communication"};
  for (const auto& metric : answer_metrics()) names.emplace_back(metric.name);
  return names;
}

/// Why rows were left out, of all ranks.
Skipped gathered(Communicator& control, const Skipped& mine) {
  Value::List list;
  for (const auto& [row, why] : mine) list.emplace_back(Value::Tuple{{row, why}});
  Skipped all;
  for (const Value& of_rank : gather_nested(control, list, "rows left out")) {
    for (const Value& one : *of_rank.list()) {
      const Value::List& items = one.tuple()->items;
      all[*items.at(0).integer()] = *items.at(1).string();
    }
  }
  return all;
}

/// The row's place stands in front of most reasons, and apart from them.
std::string without_place(const std::string& why, const std::string& where) {
  return why.starts_with(where + ": ") ? why.substr(where.size() + 2) : why;
}

/// Nothing: some rank wished to stop. It takes no further rows, and those that it has begun come to their ends.
std::optional<std::pair<std::vector<Generated>, Skipped>> generate(Session& session, const Dataset& dataset,
                                                                   const AnswerOptions& options,
                                                                   const EventBus& events) {
  Job& job = session.job();
  DatasetPrompts prompts(dataset, session.processor(), options.rows.loader(job, session.options(), 1),
                         job.control().recorder());
  GenerateOptions generate = options.generate;  // no more slots than there are rows for
  generate.batch_size = std::clamp<int64_t>(dataset.size(), 1, generate.batch_size);
  Generator generator(session.model(), session.executor(), job.control(), session.plan().gathers());
  RowsProgress progress(job, events, "answers", dataset.size());
  int64_t mine = 0;
  bool stops = false;
  const auto next = [&] {
    stops = stops || (options.stop_wanted && options.stop_wanted());
    return stops ? std::nullopt : prompts.next();
  };
  auto answers = job.control().recorder().confessing([&] {
    return generator.run_all(next, generate, [&](const Generated&) { progress.reach(++mine * job.world.size); });
  });
  const auto stopped = job.control().all_gather_bytes(stops ? "stops" : "", "a wish to stop");
  if (std::ranges::any_of(stopped, [](const std::string& rank) { return !rank.empty(); })) return std::nullopt;
  progress.finish();
  Skipped skipped;
  for (const auto& row : prompts.skipped()) skipped[row.row] = without_place(row.why, dataset.where(row.row));
  return std::pair(std::move(answers), gathered(job.control(), skipped));
}

/// Rank 0's figures on every rank, without groups and samples.
void share(Communicator& control, AnswerFigures& figures) {
  Json metrics = Json::array();
  for (const auto& metric : figures.metrics) metrics.push_back({metric.name, metric.mean, metric.rows});
  const Json mine = {{"counts", {figures.rows, figures.exact, figures.answered, figures.skipped}},
                     {"first_skipped", figures.first_skipped},
                     {"metrics", metrics},
                     {"values", figures.values}};
  const Json json =
      parse_json(from_rank_0(control, mine.dump(-1, ' ', false, Json::error_handler_t::replace), "evaluation figures"),
                 "evaluation figures");
  if (control.rank() == 0) return;
  const auto counts = json.at("counts").get<std::vector<int64_t>>();
  std::tie(figures.rows, figures.exact, figures.answered, figures.skipped) =
      std::tie(counts.at(0), counts.at(1), counts.at(2), counts.at(3));
  figures.first_skipped = json.at("first_skipped").get<std::string>();
  for (const auto& metric : json.at("metrics")) {
    figures.metrics.push_back({metric[0].get<std::string>(), metric[1].get<double>(), metric[2].get<int64_t>()});
  }
  figures.values = json.at("values").get<std::string>();
}

}  // namespace

GenerateOptions generate_options(const Session& session, int64_t batch_size, int64_t max_new_tokens, int64_t max_length,
                                 const SamplingOptions& sampling) {
  GenerateOptions options{.max_new_tokens = max_new_tokens, .batch_size = batch_size};
  options.sampling = sampling;
  options.passes_positions = passes_positions(session.model().dims, max_length);
  options.penalises_prompt = !session.model().answers_from_embeddings;
  options.stop_tokens = session.processor().stop_tokens();
  options.text_of = [&tokenizer = session.processor().tokenizer()](auto ids) { return tokenizer.decode(ids); };
  options.collate = session.collate();
  options.adapters = session.num_choices();
  options.remember_media = !session.options().placement.limited();  // a limit is for what is planned
  return options;
}

AnswerFigures answer_rows(Session& session, const Dataset& dataset, const AnswerOptions& options,
                          const EventBus& events) {
  Communicator& control = session.job().control();
  const auto generated = generate(session, dataset, options, events);
  AnswerFigures figures;
  figures.stopped = !generated;
  if (figures.stopped) return figures;
  const std::vector<Generated>& answers = generated->first;
  const Skipped& skipped = generated->second;
  std::optional<InputFile> rows;
  together(control, "scoring answers", [&] {
    rows.emplace();
    if (control.rank() != 0) return;
    const PhaseScope scope(control.recorder(), Phase::kEvaluate, "scoring answers");
    Predictions predictions(dataset, session.processor().tokenizer(),
                            {.metrics = options.metrics,
                             .show = options.show,
                             .skip_special_tokens = options.generate.sampling.skip_special_tokens,
                             .keep_text = !options.output.empty(),
                             .rows = options.programs.empty() ? nullptr : &*rows});
    predictions.add_all(answers, skipped);
    figures = predictions.figures();
    if (!options.output.empty()) write_text(options.output, predictions.text());
  });
  const auto& programs = answers.empty() ? std::vector<Program>{} : options.programs;
  const auto values = run_metric_programs(control, programs, *rows, options.metric_timeout_s, events);
  figures.values = merged_values(values, taken_names()).dump(-1, ' ', false, Json::error_handler_t::replace);
  share(control, figures);
  return figures;
}

NamedValues named_values(const AnswerFigures& figures) {
  NamedValues out;
  for (const auto& metric : figures.metrics) out.numbers.emplace_back(metric.name, metric.mean);
  const Json values = parse_json(figures.values, "evaluation figures");
  for (const auto& item : values.items()) {
    if (item.value().is_number()) {
      out.numbers.emplace_back(item.key(), item.value().get<double>());
    } else {
      out.others.emplace_back(item.key(), item.value().dump());
    }
  }
  return out;
}

double perplexity(double loss) { return std::exp(loss); }

}  // namespace lockstep
