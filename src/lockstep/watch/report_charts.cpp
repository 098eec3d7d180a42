#include "lockstep/watch/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr int kRankColours[] = {0, 3, 2, 4, 5, 6, 7};   // 1 is the prediction
constexpr size_t kRankLines = std::size(kRankColours);  // more ranks: the highest and the lowest

using Of = std::function<double(const StepDone&)>;

std::vector<double> column(const RunHistory& history, const Of& of) {
  std::vector<double> out;
  for (const auto& step : history.steps) out.push_back(of(step));
  return out;
}

double gib(const std::vector<int64_t>& ranks, size_t rank) {
  return rank < ranks.size() ? static_cast<double>(ranks[rank]) / (1 << 30) : kMissing;
}

double highest_gib(const std::vector<int64_t>& ranks) {
  return ranks.empty() ? kMissing : static_cast<double>(*std::max_element(ranks.begin(), ranks.end())) / (1 << 30);
}

double lowest_gib(const std::vector<int64_t>& ranks) {
  return ranks.empty() ? kMissing : static_cast<double>(*std::min_element(ranks.begin(), ranks.end())) / (1 << 30);
}

Chart memory_chart(const RunHistory& history) {
  Chart chart{.title = "Peak memory", .unit = "GiB", .from_zero = true};
  size_t num_ranks = 0;
  for (const auto& step : history.steps) num_ranks = std::max(num_ranks, step.peak_bytes.size());
  if (num_ranks > kRankLines) {
    chart.series.push_back(
        {"highest rank", column(history, [](const auto& s) { return highest_gib(s.peak_bytes); }), 0});
    chart.series.push_back({"lowest rank", column(history, [](const auto& s) { return lowest_gib(s.peak_bytes); }), 3});
  } else {
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      chart.series.push_back({fmt::format("rank {}", rank),
                              column(history, [&](const auto& s) { return gib(s.peak_bytes, rank); }),
                              kRankColours[rank]});
    }
  }
  Series predicted{"predicted", column(history, [](const auto& s) { return highest_gib(s.predicted_bytes); }), 1, true};
  const bool known = std::any_of(predicted.y.begin(), predicted.y.end(), [](double y) { return std::isfinite(y); });
  if (known) chart.series.push_back(std::move(predicted));
  return chart;
}

bool any_positive(const std::vector<double>& y) {
  return std::any_of(y.begin(), y.end(), [](double value) { return value > 0; });
}

Chart communication_chart(const std::string& title, const std::string& unit, std::vector<double> gather,
                          std::vector<double> reduce) {
  Chart chart{.title = title, .unit = unit, .from_zero = true};
  if (!any_positive(gather) && !any_positive(reduce)) return chart;
  chart.series = {{"gather", std::move(gather), 0}, {"reduce", std::move(reduce), 1}};
  return chart;
}

Chart single(const RunHistory& history, const std::string& title, const std::string& unit, int colour, const Of& of) {
  return {.title = title, .unit = unit, .series = {{title, column(history, of), colour}}};
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& y, double keep) {
  std::vector<double> out;
  double sum = 0, weight = 0;
  for (const double value : y) {
    if (std::isfinite(value)) {
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    out.push_back(weight > 0 ? sum / weight : kMissing);
  }
  return out;
}

std::vector<double> smoothed_loss(const RunHistory& history) {
  const auto loss = column(history, [](const auto& s) { return s.loss; });
  // A window of a thirtieth of the run, at least 3 records and at most 10: a short run's curve must not lag behind it.
  const double window = std::clamp(static_cast<double>(loss.size()) / 30, 3.0, 10.0);
  return smoothed(loss, 1 - 1 / window);
}

std::vector<Chart> report_charts(const RunHistory& history) {
  const auto loss = column(history, [](const auto& s) { return s.loss; });
  Chart losses{.title = "Loss",
               .series = {{"each record", loss, 0, false, true}, {"smoothed", smoothed_loss(history), 0}}};
  Chart accuracy = single(history, "Token accuracy", "%", 2,
                          [](const auto& s) { return s.token_accuracy < 0 ? kMissing : s.token_accuracy; });
  losses.marks.name = "evaluation";
  accuracy.marks.name = "evaluation";
  accuracy.series.front().name = "training";
  for (const auto& eval : history.evals) {
    losses.marks.x.push_back(static_cast<double>(eval.step));
    losses.marks.y.push_back(eval.loss);
    if (eval.token_accuracy < 0) continue;
    accuracy.marks.x.push_back(static_cast<double>(eval.step));
    accuracy.marks.y.push_back(eval.token_accuracy);
  }
  std::vector<Chart> charts{std::move(losses), std::move(accuracy)};
  charts.push_back(single(history, "Gradient norm", "", 3, [](const auto& s) { return s.grad_norm; }));
  charts.push_back(single(history, "Learning rate", "", 4, [](const auto& s) { return s.learning_rate; }));
  charts.push_back(single(history, "Tokens per second", "", 7, [](const auto& s) { return s.tokens_per_second; }));
  charts.back().from_zero = true;
  charts.push_back(memory_chart(history));
  charts.push_back(communication_chart("Communication wait per step", "ms",
                                       column(history, [](const auto& s) { return s.gather_wait_seconds * 1e3; }),
                                       column(history, [](const auto& s) { return s.reduce_wait_seconds * 1e3; })));
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  charts.push_back(communication_chart("Communication volume per step", "MiB",
                                       column(history, [&](const auto& s) { return mib(s.gather_bytes); }),
                                       column(history, [&](const auto& s) { return mib(s.reduce_bytes); })));
  const auto steps = column(history, [](const auto& s) { return static_cast<double>(s.step); });
  for (Chart& chart : charts) chart.x = steps;
  return charts;
}

}  // namespace lockstep
