#include "lockstep/watch/post_mortem_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/post_mortem_view.h"

namespace lockstep {
namespace {

using Row = std::vector<std::string>;

constexpr size_t kWidestColumn = 56;

/// Without control characters, so that a rank cannot steer the terminal. Line ends stay where asked.
std::string plain(std::string_view text, bool keep_lines = false) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && !(keep_lines && c == '\n')) || byte == 0x7F) c = '?';
  }
  return out;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string cut(std::string text, size_t most) {
  if (width_of(text) <= most) return text;
  size_t seen = 0, end = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && ++seen == most) break;
  }
  return text.substr(0, end) + "…";
}

/// Columns side by side, the first row as their names; empty columns are left out.
std::string table(std::vector<Row> rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = cut(plain(row[i]), kWidestColumn);
      if (&row != &rows.front()) widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths[i] == 0) continue;
      const size_t width = std::max(widths[i], width_of(rows.front()[i]));
      line += "  " + row[i] + std::string(width - width_of(row[i]), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string call_state(const RankReport& report, const FlightRecord& record) {
  return fmt::format("{} {}{}", call_state_name(record.state), record.over() ? "in " : "for ",
                     format_duration(call_seconds(report, record)));
}

/// Number, operation and label: the shape stands below, where calls are compared.
std::string last_call(const RankReport& report) {
  const FlightRecord* record = last_call_of(report).record;
  if (record == nullptr) return {};
  return fmt::format("#{} {} \"{}\" {}", record->seq, op_name(record->signature.op), record->label.view(),
                     call_state_name(record->state));
}

std::string waiting_text(const RankReport& report) {
  const GroupReport* group = report.waiting();
  if (group == nullptr) return {};
  return fmt::format("#{}{} for {}", group->waiting_seq, group->name.empty() ? "" : " of " + group->name,
                     format_duration(group->waiting_seconds));
}

std::string ranks_table(const PostMortem& found, const Diagnosis& diagnosis) {
  const auto shown = standings(found.ranks, diagnosis.culprits);
  std::vector<Row> rows{{"rank", "host", "process", "memory", "life", "place", "last call", "waits in"}};
  const bool one_host = std::all_of(found.ranks.begin(), found.ranks.end(),
                                    [&](const auto& report) { return report.host == found.ranks.front().host; });
  for (const auto& row : shown) {
    const RankReport& report = *row.sample;
    rows.push_back({row.ranks.text(), one_host ? "" : report.host, state_of(report).text,
                    report.process.resident_bytes > 0 ? format_bytes(report.process.resident_bytes) : "",
                    report.joined ? std::string(life_text(report.life)) : "", report.place(), last_call(report),
                    waiting_text(report)});
  }
  return table(std::move(rows));
}

std::string sides(const PostMortem& found, const Diagnosis& diagnosis) {
  const Comparison comparison = compare_calls(found.ranks, diagnosis);
  if (comparison.calls.empty()) return {};
  const auto name = [](const RankReport* report) {
    return report != nullptr ? fmt::format("rank {}", report->rank) : std::string();
  };
  std::vector<Row> rows{{"", "#", name(comparison.odd), "", name(comparison.usual), ""}};
  for (const auto& pair : comparison.calls) {
    const bool differs = !pair.alike && comparison.odd != nullptr && comparison.usual != nullptr;
    Row row{pair.seq == comparison.seq ? ">" : differs ? "*" : " ", std::to_string(pair.seq)};
    const auto add = [&](const RankReport* report, const FlightRecord* record) {
      const bool made = report != nullptr && record != nullptr;
      row.push_back(made ? record->call() : report != nullptr ? "-" : "");
      row.push_back(made ? call_state(*report, *record) : "");
    };
    add(comparison.odd, pair.odd);
    add(comparison.usual, pair.usual);
    rows.push_back(std::move(row));
  }
  std::string title = fmt::format("calls around #{}", comparison.seq);
  if (!comparison.group.empty()) title += fmt::format(" of group \"{}\"", plain(comparison.group));
  return fmt::format("\n{} (> the call in question, * differs)\n{}", title, table(std::move(rows)));
}

Json call_json(const RankReport& report, const LastCall& last) {
  if (last.record == nullptr) return nullptr;
  const FlightRecord& record = *last.record;
  return {{"group", last.group->name},
          {"seq", record.seq},
          {"call", record.signature.describe()},
          {"label", std::string(record.label.view())},
          {"site", std::string(record.site.view())},
          {"step", record.step},
          {"state", std::string(call_state_name(record.state))},
          {"seconds", call_seconds(report, record)}};
}

Json rank_json(const RankReport& report) {
  Json json{{"rank", report.rank},
            {"host", report.host},
            {"node", report.node},
            {"pid", report.pid},
            {"state", state_of(report).text},
            {"life", report.joined ? Json(std::string(life_text(report.life))) : Json(nullptr)},
            {"phase", std::string(phase_name(report.phase))},
            {"place", report.place()},
            {"step", report.step},
            {"last_call", call_json(report, last_call_of(report))},
            {"waiting", nullptr},
            {"last_words", nullptr},
            {"stack", report.stack}};
  if (const auto* group = report.waiting()) {
    json["waiting"] = {{"group", group->name}, {"seq", group->waiting_seq}, {"seconds", group->waiting_seconds}};
  }
  if (const auto& words = report.last_words) {
    json["last_words"] = {
        {"message", words->message}, {"hint", words->hint}, {"place", words->place}, {"exit_code", words->exit_code}};
  }
  return json;
}

}  // namespace

std::string post_mortem_text(const PostMortem& found) {
  const Diagnosis diagnosis = diagnosis_of(found);
  std::string out = plain(found.text, /*keep_lines=*/true) + "\n";
  if (found.ranks.empty()) return out + "\nno rank left a report\n";
  out += "\n" + ranks_table(found, diagnosis);
  const RankSet missing = ranks_without_report(found.ranks);
  if (!missing.empty()) out += fmt::format("  no report of {}\n", missing.phrase());
  return out + sides(found, diagnosis);
}

std::string post_mortem_json(const PostMortem& found) {
  Json ranks = Json::array();
  for (const auto& report : found.ranks) ranks.push_back(rank_json(report));
  const Json diagnosis = parse_json_or_discard(found.diagnosis_json);
  const Json all{{"folder", found.folder.string()},
                 {"diagnosis", diagnosis.is_discarded() ? Json(nullptr) : diagnosis},
                 {"ranks", std::move(ranks)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
