#include "lockstep/metric/answer_metrics.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/metric/characters.h"
#include "lockstep/metric/multiple_choice.h"

namespace lockstep {
namespace {

bool always(const References& references) { return !references.empty(); }

bool is_choice(const References& references) {
  return std::any_of(references.begin(), references.end(),
                     [](const std::string& reference) { return choice_alone(reference).has_value(); });
}

}  // namespace

const std::vector<AnswerMetric>& answer_metrics() {
  static const std::vector<AnswerMetric> table = {{"exact_match", always, exact_match},
                                                  {"anls", always, anls},
                                                  {"rouge_l", always, rouge_l},
                                                  {"rouge_1", always, rouge_1},
                                                  {"rouge_2", always, rouge_2},
                                                  {"bleu_4", always, bleu_4},
                                                  {"multiple_choice", is_choice, multiple_choice}};
  return table;
}

std::vector<AnswerMetric> choose_answer_metrics(const std::string& names) {
  if (names.empty()) return answer_metrics();
  std::vector<std::string> known = {"loss", "perplexity", "token_acc"};
  for (const auto& metric : answer_metrics()) known.emplace_back(metric.name);
  std::vector<std::string> wanted;
  for (const auto& part : split(names, ',')) {
    wanted.push_back(trimmed(part));
    if (std::find(known.begin(), known.end(), wanted.back()) != known.end()) continue;
    const std::string near = nearest_name(wanted.back(), known);
    throw usage_error(fmt::format("--metrics {}: there is no metric \"{}\"", names, wanted.back()),
                      near.empty()
                          ? fmt::format("metrics: {}; your own is a program: --metric ./my_metric.py", join(known, " "))
                          : "did you mean " + near + "?");
  }
  std::vector<AnswerMetric> chosen;
  std::copy_if(answer_metrics().begin(), answer_metrics().end(), std::back_inserter(chosen), [&](const auto& metric) {
    return std::find(wanted.begin(), wanted.end(), metric.name) != wanted.end();
  });
  return chosen;
}

AnswerMeans::AnswerMeans(std::vector<AnswerMetric> metrics)
    : metrics_(std::move(metrics)), sums_(metrics_.size()), rows_(metrics_.size()) {}

void AnswerMeans::add(std::string_view answer, const References& references) {
  for (size_t i = 0; i < metrics_.size(); ++i) {
    if (!metrics_[i].applies(references)) continue;
    sums_[i] += metrics_[i].score(answer, references);
    ++rows_[i];
  }
}

std::vector<MetricMean> AnswerMeans::results() const {
  std::vector<MetricMean> out;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    if (rows_[i] > 0) out.push_back({metrics_[i].name, sums_[i] / static_cast<double>(rows_[i]), rows_[i]});
  }
  return out;
}

}  // namespace lockstep
