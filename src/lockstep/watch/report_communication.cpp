#include "lockstep/watch/report_communication.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/html.h"

namespace lockstep {
namespace {

constexpr size_t kMostLabels = 2000;

double longer(const CommunicationLine& line) { return std::max(line.busy_seconds, line.exposed_seconds); }

/// Dark: the rank stood in the call; light: it was under way behind compute.
std::string bar(const CommunicationLine& line, double longest) {
  const auto width = [&](double seconds) { return longest > 0 ? std::clamp(seconds / longest, 0.0, 1.0) * 100 : 0; };
  return fmt::format(R"(<div class="track pair"><div class="fill" style="width:{:.1f}%"></div>)"
                     R"(<div class="fill soft" style="width:{:.1f}%"></div></div>)",
                     width(line.exposed_seconds), width(longer(line) - line.exposed_seconds));
}

std::string table(const std::vector<CommunicationLine>& lines, const CommunicationFigures& figures) {
  double longest = 0;
  for (const auto& line : lines) longest = std::max(longest, longer(line));
  std::string out = R"(<div class="card"><table class="communication"><tr><th>What</th><th>Time</th>)";
  for (const char* head :
       {"Calls", "Bytes", "Busy s", "Exposed s", "Late s", "GB/s", "Bus GB/s", "Of run", "Longest"}) {
    out += fmt::format(R"(<th class="num">{}</th>)", head);
  }
  out += "</tr>";
  for (const auto& line : lines) {
    const auto cells = communication_cells(line, figures);
    out += fmt::format(R"(<tr><td>{}<small>{}</small></td><td>{}</td>)", escape_html(line.name),
                       escape_html(line.operation), bar(line, longest));
    for (const auto& text : {cells.calls, cells.bytes, cells.busy, cells.exposed, cells.late, cells.algorithm_bandwidth,
                             cells.bus_bandwidth, cells.share, cells.longest}) {
      out += R"(<td class="num">)" + escape_html(text) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string communication_section(const CommunicationFigures& figures) {
  if (figures.empty()) return {};
  const auto total = communication_cells(communication_total(figures), figures);
  std::string out = "<h2>Communication</h2>\n";
  out += fmt::format(
      R"(<p class="facts">{}{}{}{}</p><p class="note">Dark: exposed, the rank stood in the call. Light: hidden )"
      R"(behind compute. One rank, mean of all; {}.</p>)",
      fmt::format("<span>ranks <b>{}</b></span>", figures.ranks),
      fmt::format("<span>bytes <b>{}</b></span>", total.bytes),
      fmt::format("<span>exposed <b>{} s, {} of the run</b></span>", total.exposed, total.share),
      "<span>" + escape_html(communication_summary(figures)) + "</span>", escape_html(kCommunicationLegend));
  out += table(communication_rows(figures), figures);
  if (figures.every_label || figures.labels.empty()) return out;
  auto labels = figures.labels;
  std::stable_sort(labels.begin(), labels.end(),
                   [](const auto& a, const auto& b) { return a.exposed_seconds > b.exposed_seconds; });
  if (labels.size() > kMostLabels) labels.resize(kMostLabels);
  return out + fmt::format("<details><summary>Each label ({})</summary>", figures.labels.size()) +
         table(labels, figures) + "</details>\n";
}

}  // namespace lockstep
