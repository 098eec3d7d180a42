#include "lockstep/watch/rank_timeline.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/html.h"
#include "lockstep/watch/timeline_plan.h"

namespace lockstep {
namespace {

constexpr int kTicks = 9;
constexpr size_t kFewRows = 8;         // that may be higher
constexpr double kRoomForText = 0.05;  // a share of the width
constexpr std::array kZooms{1, 4, 16};

std::string percent(double share) { return fmt::format("{:.3f}%", share * 100); }

std::string tip(const TimelineRow& row, const Bar& bar) {
  const FlightRecord& record = *bar.record;
  std::string out = fmt::format("#{} {}\n{}", record.seq, record.call(), row.standing.ranks.phrase());
  if (!bar.group->name.empty()) out += fmt::format(", group \"{}\"", bar.group->name);
  if (!record.site.view().empty()) out += fmt::format("\nat {}", record.site.view());
  if (record.step > 0) out += fmt::format("\nafter step {}", record.step);
  const std::string took = short_time(call_seconds(*row.standing.sample, record));
  out += bar.open ? fmt::format("\n{}, not finished after {}", call_state_name(record.state), took)
                  : fmt::format("\n{} after {}", call_state_name(record.state), took);
  out += fmt::format("\nentered {} before the end of the record", short_time(-bar.from));
  return escape_html(out);
}

std::string draw_bar(const TimeScale& scale, const TimelineRow& row, const Bar& bar) {
  const double from = scale.at(bar.from), width = scale.at(bar.to) - from;
  std::string classes = op_class(bar.record->signature.op);
  if (bar.open) classes += " open";
  if (bar.record->state == CallState::kFailed) classes += " failed";
  if (bar.marked) classes += " marked";
  std::string inside;
  if (width > kRoomForText / kZooms[2]) {
    const std::string_view label = bar.record->label.view();
    inside =
        fmt::format("#{} {}", bar.record->seq, escape_html(label.empty() ? op_name(bar.record->signature.op) : label));
    if (width <= kRoomForText) classes += width > kRoomForText / kZooms[1] ? " t4" : " t16";  // read when magnified
  }
  return fmt::format(R"(<i class="c l{} {}" style="left:{};width:{}" title="{}">{}</i>)", bar.lane, classes,
                     percent(from), percent(width), tip(row, bar), inside);
}

/// What the rank did when it was in no call, where the record ends.
std::string draw_idle(const TimeScale& scale, const TimelineRow& row) {
  const RankReport& report = *row.standing.sample;
  const bool silent = !report.joined || report.over() || report.waiting() != nullptr;
  if (silent || !(report.phase_seconds > 0)) return {};
  double from = row.last_seen - report.phase_seconds;
  for (const auto& bar : row.bars) from = std::max(from, bar.to);  // calls are drawn, the rest is the phase
  const double at = scale.at(from), width = scale.at(row.last_seen) - at;
  if (!(width > 0)) return {};
  const std::string text = report.place();
  return fmt::format(R"(<i class="idle" style="left:{};width:{}" title="{}">{}</i>)", percent(at), percent(width),
                     escape_html(text), width > kRoomForText ? escape_html(text) : "");
}

/// Where the row ends before the record does, or by force.
std::string draw_end(const TimeScale& scale, const TimelineRow& row, const Comparison& marked) {
  const RankReport& report = *row.standing.sample;
  const State state = state_of(report);
  std::string out;
  const double at = scale.at(row.last_seen);
  if (report.process.state == ProcessState::kGone || report.process.state == ProcessState::kStopped) {
    const double since = report.process.state == ProcessState::kGone
                             ? at
                             : scale.at(row.last_seen - std::max(0.0, report.stopped_seconds));
    out +=
        fmt::format(R"(<b class="ends {}" style="left:{}" title="{}">{}</b>)", state.mood == Mood::kBad ? "bad" : "",
                    percent(since), escape_html(state.text), report.process.state == ProcessState::kGone ? "✕" : "‖");
  }
  if (marked.seq > 0 && !row.has_marked) {
    bool forgotten = false;  // made, but no longer in the ring
    for (const auto& group : report.groups) forgotten |= group.name == marked.group && group.entered >= marked.seq;
    out += fmt::format(R"(<b class="never">{} #{}</b>)", forgotten ? "no record of" : "never came to", marked.seq);
  }
  return out;
}

/// The word that the call is missing gets a line of its own.
int lanes_of(const TimelineRow& row, const Comparison& marked) {
  return row.num_lanes + (marked.seq > 0 && !row.has_marked ? 1 : 0);
}

std::string draw_mark(const TimeScale& scale, const TimelineRow& row) {
  for (const auto& bar : row.bars) {
    if (!bar.marked) continue;
    return fmt::format(R"(<b class="pin" style="left:{}" title="{}"></b>)", percent(scale.at(bar.from)), tip(row, bar));
  }
  return {};
}

std::string who(const Standing& row, bool one_host) {
  const State state = state_of(*row.sample);
  const int size = row.ranks.size();
  const std::string name = size == 1 ? row.ranks.text() : fmt::format("{} ranks", size);
  const std::string more = size > 1 ? row.ranks.text() : one_host ? "" : row.sample->host;
  return fmt::format(
      R"(<div class="who" title="{}"><b>{}</b><span class="host">{}</span><span class="state {}">{}</span></div>)",
      escape_html(
          fmt::format("{} on {}, {}: {}", row.ranks.phrase(), row.sample->host, state.text, row.sample->place())),
      escape_html(name), escape_html(more), mood_class(state, row.culprit), escape_html(state.text));
}

/// The moments of one magnification, of which the style sheet shows the one that is chosen.
std::string draw_ticks(const TimeScale& scale, int zoom) {
  std::string out;
  for (const auto& tick : scale.ticks(kTicks * zoom)) {
    const std::string name =
        tick.seconds > -1 ? fmt::format("−{:.6g} ms", -tick.seconds * 1e3) : fmt::format("−{:.8g} s", -tick.seconds);
    const bool at_end = tick.at > 1 - 0.03 / zoom;  // "end" stands there
    out += fmt::format(R"(<s class="k{}" style="left:{}"><b>{}</b></s>)", zoom, percent(tick.at), at_end ? "" : name);
  }
  return out;
}

std::string draw_axis(const TimelinePlan& plan) {
  std::string out = R"(<div class="axis"><div class="who">rank</div></div><div class="layer">)";
  for (const int zoom : kZooms) out += draw_ticks(plan.scale, zoom);
  for (const auto& one : plan.scale.breaks()) {
    out += fmt::format(R"(<u style="left:{};width:{}"><em>{}</em></u>)", percent(one.from), percent(one.to - one.from),
                       short_time(one.seconds));
  }
  return out + R"(<span class="last">end</span></div>)";
}

std::string legend(const TimelinePlan& plan, const Comparison& marked) {
  std::set<Op> ops;
  bool open = false, failed = false;
  for (const auto& row : plan.rows) {
    for (const auto& bar : row.bars) {
      ops.insert(bar.record->signature.op);
      open |= bar.open;
      failed |= bar.record->state == CallState::kFailed;
    }
  }
  std::string out = R"(<div class="legend">)";
  for (const Op op : ops) out += fmt::format(R"(<span><i class="{}"></i>{}</span>)", op_class(op), op_name(op));
  if (open) out += R"(<span><i class="open"></i>never finished</span>)";
  if (failed) out += R"(<span><i class="failed"></i>failed</span>)";
  if (marked.seq > 0) out += fmt::format(R"(<span><i class="pin"></i>call #{}</span>)", marked.seq);
  if (!plan.scale.breaks().empty()) out += R"(<span><i class="cut"></i>silence, drawn shorter</span>)";
  return out + "</div>";
}

/// Buttons without a script: the plane grows with the one that is chosen.
constexpr const char* kZoomButtons =
    R"(<input type="radio" name="zoom" id="z1" checked><input type="radio" name="zoom" id="z4"><input type="radio" name="zoom" id="z16"><div class="bar"><div class="zoom"><label for="z1">All</label><label for="z4">4×</label><label for="z16">16×</label></div>)";

}  // namespace

std::string op_class(Op op) {
  constexpr int kLast = static_cast<int>(Op::kRecv);
  return fmt::format("o{}", std::min(static_cast<int>(op), kLast));
}

const char* mood_class(const State& state, bool culprit) {
  if (culprit || state.mood == Mood::kBad) return "bad";
  return state.mood == Mood::kWaiting ? "warn" : "";
}

std::string short_time(double seconds) {
  if (!(seconds > 0)) return "0 ms";
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return format_duration(seconds);
}

std::string render_timeline(const std::vector<Standing>& rows, const Comparison& marked) {
  if (rows.empty()) return "<p class=\"soft\">No rank left a report.</p>\n";
  const TimelinePlan plan = plan_timeline(rows, marked);
  std::string out = fmt::format(R"(<div class="timeline{}">)", rows.size() <= kFewRows ? " few" : "") + kZoomButtons +
                    legend(plan, marked) + R"(</div><div class="scroll" tabindex="0"><div class="plane">)" +
                    draw_axis(plan);
  const bool one_host = std::all_of(rows.begin(), rows.end(),
                                    [&](const Standing& row) { return row.sample->host == rows.front().sample->host; });
  for (const auto& row : plan.rows) {
    out += fmt::format(R"(<div class="row n{}{}">{}<div class="run">)", lanes_of(row, marked),
                       row.standing.culprit ? " culprit" : "", who(row.standing, one_host));
    out += draw_idle(plan.scale, row);
    for (const auto& bar : row.bars) out += draw_bar(plan.scale, row, bar);
    out += draw_mark(plan.scale, row) + draw_end(plan.scale, row, marked) + "</div></div>\n";
  }
  out += "</div></div></div>\n";
  if (plan.num_shown < plan.num_recorded) {
    out += fmt::format(R"(<p class="soft">The last {} of {} recorded calls of these rows.</p>)", plan.num_shown,
                       plan.num_recorded);
  }
  return out;
}

}  // namespace lockstep
