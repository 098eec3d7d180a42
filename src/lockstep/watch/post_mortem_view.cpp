#include "lockstep/watch/post_mortem_view.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/guard/census.h"

namespace lockstep {
namespace {

constexpr size_t kFewCulprits = 16;
constexpr int kMaxRank = 1 << 24;
constexpr uint64_t kCallsBefore = 4, kCallsAfter = 4;

std::string text_in(const Json& json, const char* name) {
  const auto at = json.find(name);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

template <typename T>
T number_in(const Json& json, const char* name) {
  const auto at = json.find(name);
  return at != json.end() && at->is_number_integer() ? at->get<T>() : T{};
}

RankSet ranks_in(const Json& json, const char* name) {
  RankSet ranks;
  const auto at = json.find(name);
  if (at == json.end() || !at->is_array()) return ranks;
  for (const auto& rank : *at) {
    if (!rank.is_number_integer()) continue;
    const auto value = rank.get<int64_t>();
    if (value >= 0 && value <= kMaxRank) ranks.add(static_cast<int>(value));
  }
  return ranks;
}

Fault fault_in(const Json& json) {
  const std::string name = text_in(json, "fault");
  for (auto fault = Fault::kMismatch; fault <= Fault::kAbsent; fault = Fault{static_cast<int>(fault) + 1}) {
    if (fault_name(fault) == name) return fault;
  }
  return Fault::kError;
}

const RankReport* report_of(const std::vector<RankReport>& reports, int rank) {
  const auto at = std::find_if(reports.begin(), reports.end(), [&](const auto& report) { return report.rank == rank; });
  return at == reports.end() ? nullptr : &*at;
}

Census census_without_calls(const std::vector<RankReport>& reports) {
  Census census;
  for (const auto& report : reports) {
    RankReport standing = report;
    for (auto& group : standing.groups) group.tail.clear();
    census.add(std::move(standing));
  }
  return census;
}

std::string for_seconds(std::string text, double seconds) {
  return seconds > 0 ? fmt::format("{} for {}", text, format_duration(seconds)) : text;
}

State end_of(const RankReport& report) {
  const ProcessEnd& end = report.end;
  if (end.out_of_memory) return {"killed: out of memory", Mood::kBad};
  if (end.known && end.signal != 0) {
    const char* name = ::sigabbrev_np(end.signal);
    const bool own_fault = end.signal == SIGSEGV || end.signal == SIGBUS || end.signal == SIGABRT ||
                           end.signal == SIGFPE || end.signal == SIGILL;
    return {fmt::format("{} ({})", own_fault ? "crashed" : "killed",
                        name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", end.signal)),
            Mood::kBad};
  }
  if (!end.known && report.life == Life::kFinished) return {"finished", Mood::kFine};
  if (end.known) return {fmt::format("exited with {}", end.exit_code), end.exit_code == 0 ? Mood::kFine : Mood::kBad};
  return {"process is gone", Mood::kBad};
}

const GroupReport* group_named(const RankReport& report, const std::string& name) {
  for (const auto& group : report.groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

/// Where the diagnosis names no call, the one that a rank waits in.
void choose_call(const std::vector<RankReport>& reports, const Diagnosis& diagnosis, Comparison& out) {
  out.group = diagnosis.group;
  out.seq = diagnosis.seq;
  for (const auto& report : reports) {
    if (out.seq != 0) return;
    if (const auto* waiting = report.waiting()) {
      out.group = waiting->name;
      out.seq = waiting->waiting_seq;
    }
  }
}

/// A rank that is not to blame, rather one of the largest side, and rather one that made the call.
const RankReport* usual_rank(const std::vector<RankReport>& reports, const Diagnosis& diagnosis,
                             const Comparison& wanted) {
  const RankReport* second_best = nullptr;
  const auto made_it = [&](const RankReport& report) {
    const GroupReport* group = group_named(report, wanted.group);
    return group != nullptr && group->find(wanted.seq) != nullptr;
  };
  for (const auto& side : diagnosis.sides) {
    for (const auto& report : reports) {
      if (!side.ranks.contains(report.rank) || &report == wanted.odd) continue;
      if (!diagnosis.culprits.contains(report.rank) && made_it(report)) return &report;
    }
  }
  for (const auto& report : reports) {
    if (&report == wanted.odd || diagnosis.culprits.contains(report.rank)) continue;
    if (made_it(report)) return &report;
    if (second_best == nullptr) second_best = &report;
  }
  return second_best;
}

}  // namespace

Diagnosis diagnosis_of(const PostMortem& found) {
  const Json json = parse_json_or_discard(found.diagnosis_json);
  if (!json.is_object()) return {.headline = found.text};
  Diagnosis out{.fault = fault_in(json), .culprits = ranks_in(json, "culprits")};
  out.between_two = json.contains("between_two") && json["between_two"] == true;
  out.headline = text_in(json, "headline");
  if (out.headline.empty()) out.headline = found.text;
  out.group = text_in(json, "group");
  out.seq = number_in<uint64_t>(json, "seq");
  out.op = text_in(json, "op");
  out.label = text_in(json, "label");
  if (json.contains("sides") && json["sides"].is_array()) {
    for (const auto& side : json["sides"]) {
      if (side.is_object())
        out.sides.push_back({ranks_in(side, "ranks"), text_in(side, "call"), text_in(side, "site")});
    }
  }
  if (json.contains("places") && json["places"].is_array()) {
    for (const auto& place : json["places"]) {
      if (place.is_string()) out.places.push_back(place.get<std::string>());
    }
  }
  out.why = text_in(json, "why");
  out.fix = text_in(json, "fix");
  out.stack = text_in(json, "stack");
  out.error_hint = text_in(json, "hint");
  out.exit_code = number_in<int>(json, "exit_code");
  return out;
}

std::vector<Standing> standings(const std::vector<RankReport>& reports, const RankSet& culprits, size_t most) {
  std::vector<Standing> rows;
  const auto add_alone = [&](const RankReport& report) {
    rows.push_back({{report.rank}, &report, culprits.contains(report.rank)});
  };
  if (reports.size() <= most) {
    for (const auto& report : reports) add_alone(report);
    return rows;
  }
  std::vector<Standing> to_blame, others;
  for (const auto& one : census_without_calls(reports).classes) {
    Standing guilty{.culprit = true}, innocent;
    for (const int rank : one.ranks.ranks()) {
      Standing& row = culprits.contains(rank) ? guilty : innocent;
      row.ranks.add(rank);
      if (row.sample == nullptr) row.sample = report_of(reports, rank);
    }
    if (!guilty.ranks.empty()) to_blame.push_back(std::move(guilty));
    if (!innocent.ranks.empty()) others.push_back(std::move(innocent));
  }
  size_t num_culprits = 0;
  for (const auto& row : to_blame) num_culprits += static_cast<size_t>(row.ranks.size());
  if (num_culprits <= std::min(kFewCulprits, most)) {
    for (const auto& report : reports) {
      if (culprits.contains(report.rank)) add_alone(report);
    }
  } else {
    rows = std::move(to_blame);
  }
  const auto larger = [](const Standing& a, const Standing& b) { return a.ranks.size() > b.ranks.size(); };
  if (rows.size() > most) std::stable_sort(rows.begin(), rows.end(), larger);
  rows.resize(std::min(rows.size(), most));
  std::stable_sort(others.begin(), others.end(), larger);
  others.resize(std::min(others.size(), most - rows.size()));
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

RankSet ranks_without_report(const std::vector<RankReport>& reports) {
  RankSet missing;
  int world_size = 0, next = 0;
  for (const auto& report : reports) world_size = std::max(world_size, std::min(report.world_size, kMaxRank));
  for (const auto& report : reports) {  // by rank
    if (report.rank > next && next < world_size) missing.add_stretch(next, std::min(report.rank, world_size) - 1);
    next = std::max(next, std::min(report.rank, kMaxRank) + 1);
  }
  if (next < world_size) missing.add_stretch(next, world_size - 1);
  return missing;
}

State state_of(const RankReport& report) {
  if (report.unreachable) return {"its node is silent", Mood::kBad};
  if (report.process.state == ProcessState::kGone && (report.pid > 0 || report.joined)) return end_of(report);
  if (!report.joined) return {"never came", Mood::kBad};
  if (report.process.state == ProcessState::kStopped)
    return {for_seconds("stopped", report.stopped_seconds), Mood::kBad};
  if (report.process.state == ProcessState::kTraced) return {"held by a debugger", Mood::kBad};
  if (report.life == Life::kFailing) return {"gave up", Mood::kBad};
  if (report.life == Life::kFinished) return {"finished", Mood::kFine};
  if (const auto* waiting = report.waiting()) return {for_seconds("waits", waiting->waiting_seconds), Mood::kWaiting};
  if (report.process.in_kernel) return {"blocked in the kernel", Mood::kBad};
  return {for_seconds("busy", report.phase_seconds >= 1 ? report.phase_seconds : 0), Mood::kFine};
}

std::string_view life_text(Life life) {
  switch (life) {
    using enum Life;
    case kStarting:
      return "starting";
    case kRunning:
      return "running";
    case kFailing:
      return "failing";
    case kFinishing:
      return "finishing";
    case kFinished:
      return "finished";
  }
  return "unknown";
}

LastCall last_call_of(const RankReport& report) {
  LastCall last;
  for (const auto& group : report.groups) {
    if (group.tail.empty()) continue;
    const FlightRecord& own = group.tail.back();
    // The call that is waited in is the one to tell, also where another thread has made one since.
    if (group.waiting_seq == own.seq && group.waiting_seq > 0) return {&group, &own};
    if (last.record == nullptr || own.entered_ns > last.record->entered_ns) last = {&group, &own};
  }
  return last;
}

double seconds_from(int64_t a_ns, int64_t b_ns) {
  return static_cast<double>(static_cast<int64_t>(static_cast<uint64_t>(a_ns) - static_cast<uint64_t>(b_ns))) * 1e-9;
}

int64_t last_seen_ns(const RankReport& report) {
  if (report.process.state != ProcessState::kGone || !(report.gone_seconds > 0)) return report.read_ns;
  const double gone = std::min(report.gone_seconds * 1e9, static_cast<double>(std::max<int64_t>(report.read_ns, 0)));
  return report.read_ns - static_cast<int64_t>(gone);
}

double call_seconds(const RankReport& report, const FlightRecord& record) {
  return std::max(0.0, seconds_from(record.over() ? record.done_ns : last_seen_ns(report), record.entered_ns));
}

Comparison compare_calls(const std::vector<RankReport>& reports, const Diagnosis& diagnosis) {
  Comparison out;
  choose_call(reports, diagnosis, out);
  if (out.seq == 0) return out;
  for (const auto& report : reports) {
    if (out.odd == nullptr && diagnosis.culprits.contains(report.rank)) out.odd = &report;
  }
  out.usual = usual_rank(reports, diagnosis, out);
  const auto group_of = [&](const RankReport* report) {
    return report != nullptr ? group_named(*report, out.group) : nullptr;
  };
  const GroupReport *odd = group_of(out.odd), *usual = group_of(out.usual);
  const uint64_t first = out.seq > kCallsBefore ? out.seq - kCallsBefore : 1;
  for (uint64_t at = 0; at <= kCallsBefore + kCallsAfter; ++at) {
    CallPair pair{.seq = first + at};
    pair.odd = odd != nullptr ? odd->find(pair.seq) : nullptr;
    pair.usual = usual != nullptr ? usual->find(pair.seq) : nullptr;
    if (pair.odd == nullptr && pair.usual == nullptr) continue;
    pair.alike = pair.odd != nullptr && pair.usual != nullptr &&
                 pair.odd->signature.agrees_with(pair.usual->signature) &&
                 pair.odd->label.view() == pair.usual->label.view();
    out.calls.push_back(pair);
  }
  return out;
}

}  // namespace lockstep
