#include "lockstep/watch/rank_details.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/html.h"
#include "lockstep/watch/rank_timeline.h"

namespace lockstep {
namespace {

constexpr size_t kMostCallRows = 12000, kFewestCalls = 50;

std::string state_of_call(const RankReport& report, const FlightRecord& record) {
  const std::string took = short_time(call_seconds(report, record));
  return record.over() ? fmt::format("{} in {}", call_state_name(record.state), took)
                       : fmt::format("{}, open for {}", call_state_name(record.state), took);
}

std::string entry(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", name, escape_html(value));
}

std::string paces(const Pace& pace) {
  if (pace.steps <= 0) return {};
  const auto each = [&](int64_t ns) {
    return short_time(static_cast<double>(ns) * 1e-9 / static_cast<double>(pace.steps));
  };
  std::string out = fmt::format("{} a step over {} steps", each(pace.step_ns), pace.steps);
  for (size_t i = 0; i < kPhases; ++i) {
    if (pace.phase_ns[i] > 0) out += fmt::format(", {} {}", phase_name(static_cast<Phase>(i)), each(pace.phase_ns[i]));
  }
  return out + fmt::format(", in calls {}", each(pace.waiting_ns));
}

std::string facts(const std::string& text) {
  const Json json = parse_json_or_discard(text);
  if (!json.is_object()) return escape_html(text);
  std::string out;
  for (const auto& [name, value] : json.items()) {
    const std::string shown =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    out += fmt::format("{}{} <b>{}</b>", out.empty() ? "" : "<br>", escape_html(name), escape_html(shown));
  }
  return out;
}

std::string known(const RankReport& report) {
  std::string out = "<dl>";
  out += entry("process", fmt::format("{}, pid {}, {}", state_of(report).text, report.pid, life_text(report.life)));
  out += entry("host", fmt::format("{}, node {}, local rank {}", report.host, report.node, report.local_rank));
  out += entry("place", report.place());
  if (report.process.resident_bytes > 0) {
    out += entry("memory", fmt::format("{} resident, {} at most", format_bytes(report.process.resident_bytes),
                                       format_bytes(report.process.peak_resident_bytes)));
  }
  if (!report.process.waits_in.empty()) out += entry("kernel", "waits in " + report.process.waits_in);
  if (const auto* waiting = report.waiting()) {
    out += entry("waits", fmt::format("in #{} of group \"{}\" for {}", waiting->waiting_seq, waiting->name,
                                      format_duration(waiting->waiting_seconds)));
  }
  if (report.last_words) {
    const LastWordsReport& words = *report.last_words;
    out += fmt::format(R"(<dt>last words</dt><dd><pre>{}</pre>)", escape_html(words.message));
    if (!words.hint.empty()) out += fmt::format("<p>{}</p>", escape_html(words.hint));
    out += fmt::format("<p class=\"soft\">{}exit code {}{}</p></dd>",
                       words.place.empty() ? "" : escape_html(words.place) + ", ", words.exit_code,
                       words.secondary ? ", a consequence of another rank's trouble" : "");
  }
  out += entry("pace", paces(report.pace));
  if (!report.facts.empty()) out += "<dt>facts</dt><dd class=\"factlist\">" + facts(report.facts) + "</dd>";
  if (!report.stack.empty()) out += "<dt>stack</dt><dd><pre>" + escape_html(report.stack) + "</pre></dd>";
  return out + "</dl>";
}

std::string ring(const RankReport& report, const GroupReport& group, const Comparison& marked, size_t most) {
  if (group.tail.empty()) return {};
  const size_t shown = std::min(group.tail.size(), most);
  std::string out = fmt::format(
      R"(<h4>{} <span class="soft">{} calls, the last {} shown, newest first</span></h4><div class="card"><table class="ring">)"
      R"(<tr><th class="num">#</th><th>Call</th><th>Label</th><th>At</th><th class="num">Step</th><th class="num">Entered</th><th>State</th></tr>)",
      group.name.empty() ? "Calls" : "Group " + escape_html(group.name), group.entered, shown);
  for (auto at = group.tail.rbegin(); at != group.tail.rbegin() + static_cast<ptrdiff_t>(shown); ++at) {
    const bool is_marked = group.name == marked.group && at->seq == marked.seq;
    const char* mood = !at->over() ? "open" : at->state == CallState::kFailed ? "failed" : "";
    out += fmt::format(
        R"(<tr class="{} {}"><td class="num">{}</td><td><i class="dot {}"></i>{}</td><td>{}</td><td>{}</td>)"
        R"(<td class="num">{}</td><td class="num">{}</td><td>{}</td></tr>)",
        is_marked ? "marked" : "", mood, at->seq, op_class(at->signature.op), escape_html(at->signature.describe()),
        escape_html(at->label.view()), escape_html(at->site.view()), at->step,
        "−" + short_time(std::max(0.0, seconds_from(report.read_ns, at->entered_ns))), state_of_call(report, *at));
  }
  return out + "</table></div>\n";
}

std::string last_call_text(const RankReport& report) {
  const LastCall last = last_call_of(report);
  if (last.record == nullptr) return report.joined ? "no call yet" : "";
  return fmt::format("#{} {}", last.record->seq, last.record->call());
}

std::string cell(const RankReport* report, const FlightRecord* record, uint64_t entered) {
  if (report == nullptr) return "<td></td>";
  if (record == nullptr) return fmt::format("<td class=\"soft\">{}</td>", entered > 0 ? "not recorded" : "not made");
  std::string out = fmt::format(R"(<td><i class="dot {}"></i>{})", op_class(record->signature.op),
                                escape_html(record->signature.describe()));
  if (!record->label.view().empty()) out += fmt::format(" <b>{}</b>", escape_html(record->label.view()));
  out += R"(<span class="soft"> )";
  if (!record->site.view().empty()) out += fmt::format("at {}, ", escape_html(record->site.view()));
  return out + state_of_call(*report, *record) + "</span></td>";
}

/// 1 when the rank has come as far as `seq`, so that the call is only missing in the record.
uint64_t came_to(const RankReport* report, const Comparison& comparison, uint64_t seq) {
  if (report == nullptr) return 0;
  for (const auto& group : report->groups) {
    if (group.name == comparison.group && group.entered >= seq) return 1;
  }
  return 0;
}

}  // namespace

std::string render_comparison(const Comparison& comparison) {
  if (comparison.calls.empty()) return {};
  std::string out = R"(<div class="card"><table class="sides"><tr><th class="num">#</th>)";
  for (const auto* report : {comparison.odd, comparison.usual}) {
    if (report == nullptr) continue;
    const State state = state_of(*report);
    out += fmt::format(R"(<th>rank {} <span class="state {}">{}</span></th>)", report->rank,
                       mood_class(state, report == comparison.odd), escape_html(state.text));
  }
  out += "</tr>\n";
  for (const auto& pair : comparison.calls) {
    const bool differs = !pair.alike && comparison.odd != nullptr && comparison.usual != nullptr;
    out += fmt::format(R"(<tr class="{} {}"><td class="num">{}</td>)", differs ? "differs" : "",
                       pair.seq == comparison.seq ? "marked" : "", pair.seq);
    if (comparison.odd != nullptr) {
      out += cell(comparison.odd, pair.odd, came_to(comparison.odd, comparison, pair.seq));
    }
    if (comparison.usual != nullptr) {
      out += cell(comparison.usual, pair.usual, came_to(comparison.usual, comparison, pair.seq));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string render_details(const std::vector<Standing>& rows, const Comparison& marked) {
  size_t num_groups = 1;
  for (const auto& row : rows) num_groups += row.sample->groups.size();
  const size_t most = std::max(kMostCallRows / num_groups, kFewestCalls);
  std::string out;
  for (const auto& row : rows) {
    const RankReport& report = *row.sample;
    const State state = state_of(report);
    out += fmt::format(
        R"(<details class="rank{}"><summary><b>{}</b><span class="state {}">{}</span><span>{}</span><span class="soft">{}</span></summary>)",
        row.culprit ? " culprit" : "", row.ranks.phrase(), mood_class(state, row.culprit), escape_html(state.text),
        escape_html(report.place()), escape_html(last_call_text(report)));
    if (row.ranks.size() > 1) out += fmt::format("<p class=\"soft\">As seen on rank {}.</p>", report.rank);
    out += known(report);
    for (const auto& group : report.groups) out += ring(report, group, marked, most);
    out += "</details>\n";
  }
  return out;
}

}  // namespace lockstep
