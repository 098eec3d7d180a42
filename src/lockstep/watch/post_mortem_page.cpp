#include "lockstep/watch/post_mortem_page.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lockstep/watch/html.h"
#include "lockstep/watch/post_mortem_style.h"
#include "lockstep/watch/post_mortem_view.h"
#include "lockstep/watch/rank_details.h"
#include "lockstep/watch/rank_timeline.h"
#include "lockstep/watch/report_style.h"

namespace lockstep {
namespace {

std::string fact(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<span>{} <b>{}</b></span>", name, escape_html(value));
}

std::string facts(const PostMortem& found, const Diagnosis& diagnosis) {
  std::set<std::string> hosts;
  int64_t first = INT64_MAX, last = 0;
  int world_size = 0;
  for (const auto& report : found.ranks) {
    if (!report.host.empty()) hosts.insert(report.host);
    first = std::min(first, report.step);
    last = std::max(last, report.step);
    world_size = std::max(world_size, report.world_size);
  }
  std::string out = R"(<p class="facts">)" + fact("ranks", std::to_string(world_size));
  if (hosts.size() == 1) out += fact("host", *hosts.begin());
  if (hosts.size() > 1) out += fact("hosts", std::to_string(hosts.size()));
  if (last > 0) out += fact("after step", first == last ? std::to_string(last) : fmt::format("{} to {}", first, last));
  if (diagnosis.exit_code != 0) out += fact("exit code", std::to_string(diagnosis.exit_code));
  return out + fact("folder", found.folder.string()) + "</p>\n";
}

std::string lines(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : "<br>") + escape_html(text);
  return out;
}

std::string entry(std::string_view name, const std::string& html) {
  return html.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html);
}

std::string sides(const Diagnosis& diagnosis) {
  if (diagnosis.sides.empty()) return {};
  std::string out = "<table>";
  for (const auto& side : diagnosis.sides) {
    bool odd = false;
    for (const auto& [first, last] : side.ranks.ranges()) odd |= diagnosis.culprits.contains(first);
    out += fmt::format(R"(<tr class="{}"><td>{}</td><td>{}</td><td>{}</td></tr>)", odd ? "odd" : "",
                       side.ranks.empty() ? "" : side.ranks.phrase(), escape_html(side.call), escape_html(side.site));
  }
  return out + "</table>";
}

std::string verdict(const Diagnosis& diagnosis) {
  std::string call = "call";
  if (diagnosis.seq > 0) call = fmt::format("call #{}", diagnosis.seq);
  std::string out = R"(<section class="verdict"><dl>)";
  if (!diagnosis.culprits.empty()) {
    out += entry(diagnosis.between_two ? "either of" : "look at", escape_html(diagnosis.culprits.phrase()));
  }
  out += entry(call, sides(diagnosis));
  if (diagnosis.seq > 0) out += entry("group", escape_html(diagnosis.group));
  out += entry("place", lines(diagnosis.places));
  out += entry("why", escape_html(diagnosis.why));
  if (!diagnosis.fix.empty())
    out += "<dt class=\"fix\">fix</dt><dd class=\"fix\">" + escape_html(diagnosis.fix) + "</dd>";
  if (diagnosis.error_hint != diagnosis.fix) out += entry("hint", escape_html(diagnosis.error_hint));
  if (!diagnosis.stack.empty()) out += entry("stack", "<pre>" + escape_html(diagnosis.stack) + "</pre>");
  return out + "</dl></section>\n";
}

std::string about_rows(const PostMortem& found, const std::vector<Standing>& rows) {
  std::string out;
  RankSet shown;
  for (const auto& row : rows) shown.add(row.ranks);
  if (rows.size() < found.ranks.size()) {
    out += fmt::format("{} ranks in {} rows: those to look at first, then ranks that stand alike together. ",
                       found.ranks.size(), rows.size());
  }
  if (static_cast<size_t>(shown.size()) < found.ranks.size()) {
    out += fmt::format("{} more ranks are in the folder's files. ",
                       found.ranks.size() - static_cast<size_t>(shown.size()));
  }
  const RankSet missing = ranks_without_report(found.ranks);
  if (!missing.empty() && !found.ranks.empty()) {
    out += fmt::format("No report of {}: a host that shares no folder with this one keeps its own. ", missing.phrase());
  }
  return out.empty() ? "" : "<p class=\"soft\">" + escape_html(out) + "</p>\n";
}

}  // namespace

std::string render_post_mortem(const PostMortem& found) {
  const Diagnosis diagnosis = diagnosis_of(found);
  const auto rows = standings(found.ranks, diagnosis.culprits);
  const Comparison comparison = compare_calls(found.ranks, diagnosis);
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>";
  out += escape_html("post-mortem: " + diagnosis.headline) + "</title><style>" + std::string(kReportStyle) +
         std::string(kPostMortemStyle) + "</style></head><body><main>\n";
  out += fmt::format(R"(<div class="top"><span class="chip bad">{}</span><span class="soft">post-mortem</span></div>)"
                     "<h1>{}</h1>\n",
                     fault_name(diagnosis.fault), escape_html(diagnosis.headline));
  out += facts(found, diagnosis) + verdict(diagnosis);
  out += "<h2>Timeline of ranks</h2>\n" + about_rows(found, rows) + render_timeline(rows, comparison);
  if (const std::string table = render_comparison(comparison); !table.empty()) {
    out += fmt::format("<h2>Calls around #{}{}</h2>\n", comparison.seq,
                       comparison.group.empty() ? "" : " of group " + escape_html(comparison.group));
    out += table;
  }
  if (!rows.empty()) out += "<h2>Ranks</h2>\n" + render_details(rows, comparison);
  return out +
         "<footer>Written by Lockstep. The numbers stand in the folder's JSON files.</footer></main></body></html>\n";
}

}  // namespace lockstep
