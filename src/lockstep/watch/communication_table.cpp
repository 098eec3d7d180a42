#include "lockstep/watch/communication_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr size_t kMostKinds = 12;

std::string seconds_text(double seconds) { return seconds < 0 ? "-" : fmt::format("{:.3f}", seconds); }

std::string bandwidth_text(double bytes_per_second) {
  const double gb = bytes_per_second * 1e-9;
  if (gb <= 0) return "-";
  return gb < 1e-3 ? "<0.001" : fmt::format("{:.3f}", gb);
}

/// A sum of which one part is not known is not known.
void add(CommunicationLine& sum, const CommunicationLine& line) {
  const auto both = [](double a, double b) { return a < 0 || b < 0 ? -1 : a + b; };
  sum.calls += line.calls;
  sum.bytes += line.bytes;
  sum.busy_seconds = both(sum.busy_seconds, line.busy_seconds);
  sum.late_seconds = both(sum.late_seconds, line.late_seconds);
  sum.exposed_seconds += line.exposed_seconds;
}

CommunicationLine sum_of(const std::string& name, const std::vector<CommunicationLine>& lines) {
  CommunicationLine sum{.name = name, .busy_seconds = 0, .late_seconds = 0};
  for (const auto& line : lines) add(sum, line);
  return sum;
}

Json line_json(const CommunicationLine& line, const CommunicationFigures& figures) {
  const auto known = [](double value, bool is_known) { return is_known ? Json(value) : Json(); };
  const bool timed = line.busy_seconds > 0 && line.bytes > 0;
  return {{"name", line.name},
          {"operation", line.operation},
          {"of", line.of_parameters ? "parameters" : "control"},
          {"calls", line.calls},
          {"bytes", line.bytes},
          {"busy_seconds", known(line.busy_seconds, line.busy_seconds >= 0)},
          {"exposed_seconds", line.exposed_seconds},
          {"late_seconds", known(line.late_seconds, line.late_seconds >= 0)},
          {"algorithm_bandwidth", known(line.algorithm_bandwidth(), timed)},
          {"bus_bandwidth", known(line.bus_bandwidth(figures.ranks), timed)},
          {"share_of_run", figures.seconds > 0 ? line.exposed_seconds / figures.seconds : 0},
          {"longest_exposed_seconds", line.longest_exposed_seconds},
          {"longest_rank", line.longest_rank >= 0 ? Json(line.longest_rank) : Json()}};
}

}  // namespace

const std::string_view kCommunicationLegend =
    "busy: from launch to end; exposed: the rank stood in the call, nothing hid it; late: of busy, waiting for ranks "
    "that had not come; GB/s: bytes / busy; bus: the same per wire, as nccl-tests count; of run: exposed";

CommunicationCells communication_cells(const CommunicationLine& line, const CommunicationFigures& figures) {
  const double share = figures.seconds > 0 ? line.exposed_seconds / figures.seconds : 0;
  CommunicationCells cells{.calls = std::to_string(line.calls),
                           .bytes = format_bytes(line.bytes),
                           .busy = seconds_text(line.busy_seconds),
                           .exposed = seconds_text(line.exposed_seconds),
                           .late = seconds_text(line.late_seconds),
                           .algorithm_bandwidth = bandwidth_text(line.algorithm_bandwidth()),
                           .bus_bandwidth = bandwidth_text(line.bus_bandwidth(figures.ranks)),
                           .share = fmt::format("{:.1f}%", share * 100)};
  if (line.operation.empty()) cells.algorithm_bandwidth = cells.bus_bandwidth = "-";  // of several operations
  if (line.longest_rank >= 0) {
    cells.longest = fmt::format("rank {}: {}", line.longest_rank, seconds_text(line.longest_exposed_seconds));
  }
  return cells;
}

std::vector<CommunicationLine> communication_rows(const CommunicationFigures& figures) {
  if (figures.every_label) return figures.labels;
  const auto& kinds = figures.kinds;
  auto room = static_cast<std::ptrdiff_t>(kMostKinds) -
              std::count_if(kinds.begin(), kinds.end(), [](const auto& line) { return line.of_parameters; });
  if (kinds.size() > kMostKinds) --room;  // for the rest
  std::vector<CommunicationLine> rows, rest;
  for (const auto& line : kinds) {
    (line.of_parameters || room-- > 0 ? rows : rest).push_back(line);
  }
  if (!rest.empty()) rows.push_back(sum_of(fmt::format("{} other kinds", rest.size()), rest));
  return rows;
}

CommunicationLine communication_total(const CommunicationFigures& figures) { return sum_of("all", figures.kinds); }

std::string communication_summary(const CommunicationFigures& figures) {
  std::string text = fmt::format("over {}", figures.transport.empty() ? "the network" : figures.transport);
  if (figures.waited_for >= 0) text += fmt::format(", most waiting was for rank {}", figures.waited_for);
  return text;
}

std::vector<std::string> communication_table(const CommunicationFigures& figures) {
  if (figures.empty()) return {};
  using Row = std::array<std::string, 11>;
  std::vector<Row> rows{{"what", "operation", "calls", "bytes", "busy s", "exposed s", "late s", "GB/s", "bus GB/s",
                         "of run", "longest"}};
  auto shown = communication_rows(figures);
  shown.push_back(communication_total(figures));
  for (const auto& line : shown) {
    CommunicationCells cells = communication_cells(line, figures);
    rows.push_back({line.name, line.operation, cells.calls, cells.bytes, cells.busy, cells.exposed, cells.late,
                    cells.algorithm_bandwidth, cells.bus_bandwidth, cells.share, cells.longest});
  }
  std::array<size_t, 11> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines{
      fmt::format("communication of {} ranks {}; one rank, mean of all, in {}:", figures.ranks,
                  communication_summary(figures), format_duration(figures.seconds))};
  for (const Row& row : rows) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = i < 2 || i + 1 == row.size();
      text += left ? fmt::format("  {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    lines.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
  }
  lines.push_back("  " + std::string(kCommunicationLegend));
  return lines;
}

Json communication_json(const CommunicationFigures& figures, bool labels) {
  Json json = {{"ranks", figures.ranks},
               {"seconds", figures.seconds},
               {"transport", figures.transport},
               {"waited_for_rank", figures.waited_for >= 0 ? Json(figures.waited_for) : Json()},
               {"kinds", Json::array()}};
  for (const auto& line : figures.kinds) json["kinds"].push_back(line_json(line, figures));
  if (!labels) return json;
  json["labels"] = Json::array();
  for (const auto& line : figures.labels) json["labels"].push_back(line_json(line, figures));
  return json;
}

}  // namespace lockstep
