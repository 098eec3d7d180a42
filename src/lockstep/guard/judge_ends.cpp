// What ranks said themselves, what they do not agree on, and how their processes ended.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/interrupted.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/guard/camps.h"
#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/settings.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {
namespace {

constexpr double kParentTells = 0.3;   // seconds in which a parent says how its process ended
constexpr double kMeetingHolds = 0.5;  // and for which a rank must have waited for one that ended well
constexpr double kAbortHolds = 0.5;    // and in which the cause of an abort shows, where that is another rank

}  // namespace

// ---- What ranks said themselves.

const RankClass* first_words(const Census& census, bool secondary) {
  const RankClass* first = nullptr;
  const auto at = [](const RankClass& one) { return one.sample.last_words->at_ns + one.sample.realtime_offset_ns; };
  for (const auto& one : census.classes) {
    if (!one.sample.last_words || one.sample.last_words->secondary != secondary) continue;
    if (first == nullptr || at(one) < at(*first)) first = &one;
  }
  return first;
}

Diagnosis error_of(const Census& census, const RankClass& one) {
  const LastWordsReport& words = *one.sample.last_words;
  Diagnosis out{.fault = Fault::kError, .culprits = one.ranks, .exit_code = words.exit_code};
  const bool watched = settings_of(one.sample).given.contains(kWatchedFlag);
  const bool everybody = words.shared || (!watched && one.ranks.size() == census.all().size());
  const std::string who = one.ranks.phrase();
  // A message may name its rank itself: "rank 2 of 4: …".
  out.headline =
      everybody || words.message.starts_with("rank") ? words.message : fmt::format("{}: {}", who, words.message);
  out.error_hint = words.hint;
  out.fix =
      words.exit_code == static_cast<int>(ExitCode::kMemory) && words.hint.find("`lockstep plan`") != std::string::npos
          ? need_less_memory(settings_of(one.sample))
          : words.hint;
  out.places.push_back(fmt::format("{}: {}; {}", who, words.place, where_it_runs(one.sample)));
  if (const FlightRecord* own = last_call(one.sample)) {
    out.op = op_name(own->signature.op);
    out.label = own->label.view();
  }
  return out;
}

/// An error that came before the rank's divergent call is the cause of it: clean-up made calls of its own.
bool error_came_first(const RankClass& one, const Diagnosis& mismatch) {
  for (const auto& group : one.sample.groups) {
    const FlightRecord* call = group.name == mismatch.group ? group.find(mismatch.seq) : nullptr;
    if (call != nullptr) return one.sample.last_words->at_ns <= call->entered_ns;
  }
  return true;
}

// ---- What must be equal and is not.

namespace {

/// Settings that may make the ranks differ in a fact; where files are named, those alone.
bool (*settings_behind(const std::string& fact))(std::string_view) {
  if (fact == "model") return [](std::string_view name) { return name.starts_with("--model"); };
  if (fact.find("data set") != std::string::npos || fact == "rows" || fact == "prompts") {
    return
        [](std::string_view name) { return name.find("dataset") != std::string_view::npos || name == "--media_dir"; };
  }
  if (fact == "world size")
    return [](std::string_view name) { return name.find("WORLD_SIZE") != std::string_view::npos; };
  return [](std::string_view name) { return name.starts_with("--") && name.find("output") == std::string_view::npos; };
}

std::string fact_fix(const std::string& name, const Settings& job) {
  if (name == "world size") {
    return fmt::format("give WORLD_SIZE (and {}) the same value on every node, and restart all ranks",
                       world_size_flags(job));
  }
  static const std::map<std::string, std::string> kFixes{
      {"command", "start the same command on all ranks"},
      {"version", "install one version of lockstep on all nodes"},
      {"CUDA libraries", "install one version of the driver and of the GPU wheels on all nodes"},
      {"libtorch", "install one version of LibTorch on all nodes"},
      {"plan", "give all ranks the same flags"},
      {"model", "copy the same model folder to all nodes, or use a shared path for --model"},
      {"data set", "copy the same data files to all nodes, or use a shared path for --dataset"}};
  const auto found = kFixes.find(name);
  return found != kFixes.end() ? found->second : "give all ranks the same command line, files and version of lockstep";
}

/// The flags or variables that differ, by value; where the ranks were started alike, what lies behind them.
std::string repair_of(const Census& census, const std::string& fact, const RankSet& odd, const RankSet& usual) {
  const Settings mine = settings_of(census.of(odd.first())->sample);
  const std::string known = fact_fix(fact, mine);
  if (fact == "version" || fact == "libtorch" || fact == "CUDA libraries" || fact == "command") return known;
  const std::string named =
      start_alike(odd, mine, usual, settings_of(census.of(usual.first())->sample), settings_behind(fact));
  return named.empty() ? known : fmt::format("{}; or {}", named, known);
}

struct FactHolders {
  std::map<std::string, RankSet> by_value;
};

}  // namespace

/// Two sides are equally strong, one of them has just joined, and a rank that comes may tip the scales.
static bool others_may_tell(const Census& census) {
  constexpr double kOthersJoin = 2.0;  // seconds
  bool comes = false, is_new = false;
  for (const auto& one : census.classes) {
    comes = comes || (!one.sample.joined && !one.sample.over() && one.sample.facts.empty());
    is_new = is_new || (one.sample.joined && one.sample.phase_seconds > 0 && one.sample.phase_seconds < kOthersJoin);
  }
  return comes && is_new;
}

std::optional<Diagnosis> differing_facts(const Census& census) {
  std::map<std::pair<std::string, std::string>, FactHolders> facts;  // by run of the process and name
  for (const auto& one : census.classes) {
    if (one.sample.facts.empty()) continue;
    const Json json = parse_json_or_discard(one.sample.facts);
    if (!json.is_object()) continue;
    const std::string run = json.contains(kRunFact) ? json.at(kRunFact).dump() : "";
    for (const auto& [name, value] : json.items()) {
      if (value.is_string()) facts[{run, name}].by_value[value.get<std::string>()].add(one.ranks);
    }
  }
  for (const auto& [key, holders] : facts) {
    const std::string& name = key.second;
    if (holders.by_value.size() < 2) continue;
    std::vector<std::pair<std::string, RankSet>> sides(holders.by_value.begin(), holders.by_value.end());
    std::stable_sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
      const int sizes = b.second.size() - a.second.size();
      return sizes != 0 ? sizes < 0 : a.second.first() < b.second.first();
    });
    Diagnosis out{.fault = Fault::kFacts, .exit_code = static_cast<int>(ExitCode::kUsage)};
    for (size_t i = 1; i < sides.size(); ++i) out.culprits.add(sides[i].second);
    out.between_two = sides[0].second.size() == sides[1].second.size();
    if (out.between_two && others_may_tell(census)) continue;
    out.label = name;
    out.headline = fmt::format("the ranks do not agree on the {}: {} has {}, {} {} {}", name, sides[1].second.phrase(),
                               sides[1].first, sides[0].second.phrase(), sides[0].second.size() == 1 ? "has" : "have",
                               sides[0].first);
    for (const auto& [value, ranks] : sides) out.sides.push_back({ranks, fmt::format("{} {}", name, value), ""});
    for (const auto& one : census.classes) {
      if (sides[1].second.contains(one.ranks.first())) out.places.push_back(place_of(one));
    }
    out.why =
        fmt::format("what differs here would make the ranks differ everywhere{}",
                    out.between_two ? "; the sides are equally strong, so either may be the one that is wrong" : "");
    out.fix = repair_of(census, name, sides[1].second, sides[0].second);
    return out;
  }
  return std::nullopt;
}

// ---- Ends of processes.

namespace {

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

bool is_a_wish(int signal) { return std::ranges::find(kEndingSignals, signal) != kEndingSignals.end(); }

void explain_death(const RankReport& report, const ProcessEnd& end, const std::string& who, Diagnosis& out) {
  if (!report.joined && end.signal != 0) out.exit_code = 128 + end.signal;  // as a shell says it
  if (end.out_of_memory) {
    out.headline = fmt::format("{} was killed by the kernel: the machine's memory is full", who);
    out.why = "the kernel killed a process of this control group for want of memory when the rank died";
    out.fix = need_less_memory(settings_of(report));
    out.exit_code = static_cast<int>(ExitCode::kMemory);
  } else if (end.known && end.signal == SIGKILL) {
    out.headline = fmt::format("{} was killed (SIGKILL)", who);
    out.why =
        "somebody sent the signal: a person, a scheduler's limit, or the kernel when memory is full "
        "(`dmesg | grep -i killed` tells)";
    out.fix = fmt::format("{} (on its own with --max_restarts); if memory was full, use less of it",
                          go_on(settings_of(report)));
  } else if (end.known && is_a_wish(end.signal)) {
    out.headline = fmt::format("{} was asked to end ({}), and ended at once", who, signal_text(end.signal));
    out.why = "a person, a scheduler or whoever started the rank sent it the signal; the others do not stay without it";
    out.fix = go_on(settings_of(report));
    out.exit_code = static_cast<int>(ExitCode::kInterrupted);
  } else if (end.known && end.signal != 0) {
    out.headline = fmt::format("{} crashed ({})", who, signal_text(end.signal));
    out.why =
        "the process ended itself without unwinding: a bug, a broken library, or a broken disk under a mapped file";
    out.fix = fmt::format("{}; its last lines may say more: report it if it comes back", go_on(settings_of(report)));
  } else if (end.known && !report.joined) {
    out.headline = fmt::format("{} ended with exit code {} before it joined the others", who, end.exit_code);
    const bool well = end.exit_code == 0;
    out.why = well ? "the others wait for it to join them, and it will not come" : "it failed while it started";
    out.fix = well ? "let every rank that is started come to the meeting (init_process_group), or start fewer"
                   : "its own lines say why";
    out.exit_code = end.exit_code != 0 ? end.exit_code : kCommunicationCode;
  } else if (end.known) {
    out.headline = fmt::format("{} ended without a word (exit code {})", who, end.exit_code);
    out.why = "the process called exit in the middle of the job";
    out.fix = fmt::format("look at its last lines; {}", go_on(settings_of(report)));
  } else {
    out.headline = fmt::format("{} is gone", who);
    out.why =
        "its process ended without a word: killed (SIGKILL), or crashed; whoever has started it was told by which "
        "signal, and may say it";
    out.fix = fmt::format("{}; the scheduler's log or `dmesg` may say who killed it", go_on(settings_of(report)));
  }
}

/// Sizes of all_to_all are each rank's own, and of many ranks are not compared: who is sent more or less than he takes is aborted there.
void explain_abort(const RankReport& report, const ProcessEnd& end, Diagnosis& out) {
  const FlightRecord* own = last_call(report);
  if (end.signal != SIGABRT || own == nullptr || own->signature.op != Op::kAllToAll || own->over()) return;
  out.why =
      "the transport aborts a rank to which another sends more or less than it takes; its last lines tell how much";
  out.fix = fmt::format(
      "let b take what a sends: compare input_split_sizes[b] of each rank a with output_split_sizes[a] of b at {}",
      own->site.view());
}

/// It has destroyed all of its groups: what its process does then is its own. Who still waits for it there is told of by early_end().
bool has_parted(const RankReport& report) {
  return !report.last_words && !report.groups.empty() && std::ranges::all_of(report.groups, &GroupReport::left);
}

/// Somebody has joined and waits at the meeting point.
bool somebody_meets(const Census& census) {
  return std::any_of(census.classes.begin(), census.classes.end(), [](const RankClass& one) {
    return one.sample.joined && one.sample.phase == Phase::kStart && one.sample.phase_seconds > kMeetingHolds;
  });
}

/// Ranks have made other calls: what a transport aborts for that, the judge decides about a moment later.
bool calls_differ(const Census& census) {
  return std::ranges::any_of(groups_of(census),
                             [&](const std::string& group) { return first_divergence(tracks_of(census, group)) != 0; });
}

/// It holds its abort up, and nothing else is wrong: a transport aborts too who has waited too long for others.
bool aborts(const Census& census, const RankClass& one) {
  const RankReport& report = one.sample;
  if (report.aborting_seconds < kAbortHolds || report.process.state == ProcessState::kGone) return false;
  const GroupReport* call = report.waiting();
  return (call == nullptr || missing_for(census, one, call).empty()) && !calls_differ(census);
}

}  // namespace

bool somebody_obeyed(const Census& census) {
  constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
  return std::ranges::any_of(census.classes, [](const RankClass& one) {
    const RankReport& rank = one.sample;
    return rank.exit_code == kInterrupted || (rank.last_words && rank.last_words->exit_code == kInterrupted) ||
           (rank.end.known && (rank.end.exit_code == kInterrupted || is_a_wish(rank.end.signal)));
  });
}

std::optional<Diagnosis> death(const Census& census) {
  for (const auto& one : census.classes) {
    const RankReport& report = one.sample;
    const bool is_aborting = aborts(census, one);
    const ProcessEnd end = is_aborting ? ProcessEnd{.known = true, .signal = SIGABRT} : report.end;
    const bool gone = (report.process.state == ProcessState::kGone || is_aborting) && report.life != Life::kFinished &&
                      !(report.last_words && report.last_words->secondary);
    if (!gone || has_parted(report) || (!end.known && report.gone_seconds < kParentTells)) continue;
    // A process that never joined may be another program, which ended well.
    const bool ended_well = !report.joined && end.known && end.exit_code == 0 && end.signal == 0;
    if (ended_well && !somebody_meets(census)) continue;
    Diagnosis out{.fault = Fault::kDeath, .culprits = one.ranks, .exit_code = kCommunicationCode};
    explain_death(report, end, one.ranks.phrase(), out);
    explain_abort(report, end, out);
    out.places.push_back(place_of(one));
    name_call(census, one, out);
    return out;
  }
  return std::nullopt;
}

std::optional<Diagnosis> stopped(const Census& census, double soft_seconds) {
  for (const auto& one : census.classes) {
    const RankReport& report = one.sample;
    if (report.process.state != ProcessState::kStopped || report.stopped_seconds < soft_seconds) continue;
    Diagnosis out{.fault = Fault::kStopped, .culprits = one.ranks, .exit_code = kCommunicationCode};
    out.headline = fmt::format("{} has been stopped (SIGSTOP) for {}", one.ranks.phrase(),
                               format_duration(report.stopped_seconds));
    out.why = "somebody or something stopped the process, so it cannot come to the next call";
    out.fix = fmt::format(
        "find who sent SIGSTOP (a debugger, a batch system that suspends jobs); `kill -CONT {}` would "
        "have woken it; {}",
        report.pid, go_on(settings_of(report)));
    out.places.push_back(place_of(one));
    name_call(census, one, out);
    return out;
  }
  return std::nullopt;
}

/// A node that falls silent takes those below it in the tree with it: the uppermost, which has the lowest ranks, is
/// named.
std::optional<Diagnosis> lost_node(const Census& census) {
  const RankClass* first = nullptr;
  RankSet silent;
  for (const auto& one : census.classes) {
    if (!one.sample.unreachable) continue;
    silent.add(one.ranks);
    if (first == nullptr || one.ranks.first() < first->ranks.first()) first = &one;
  }
  if (first == nullptr) return std::nullopt;
  Diagnosis out{.fault = Fault::kLostNode, .culprits = silent, .exit_code = kCommunicationCode};
  const RankReport& sample = first->sample;
  out.headline = fmt::format("node {} ({}) does not answer any more: {}", sample.node,
                             sample.host.empty() ? "unknown host" : sample.host, silent.phrase());
  out.why = "its agent is silent: the machine is down, or the network to it is cut";
  out.fix = fmt::format("check the machine and the network (`ping {}`); {}", sample.host, go_on(settings_of(sample)));
  out.places.push_back(place_of(*first));
  name_call(census, *first, out);
  return out;
}

}  // namespace lockstep
