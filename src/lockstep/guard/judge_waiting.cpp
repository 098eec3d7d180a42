// Who is late, and who never came.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/meeting_words.h"
#include "lockstep/guard/settings.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {

// ---- Somebody is late.

namespace {

constexpr double kGroupTakes = 30;  // seconds until a group that all have come to is not made

/// Those that others wait for and that wait for nobody themselves, from `waiter` on.
std::vector<Missing> late_ones(const Census& census, const RankClass& waiter) {
  std::set<const RankClass*> seen{&waiter};
  std::map<const RankClass*, RankSet> late;
  std::vector<const RankClass*> open{&waiter};
  while (!open.empty()) {
    const RankClass* at = open.back();
    open.pop_back();
    const auto missing = missing_for(census, *at, at->sample.waiting());
    if (missing.empty() && at != &waiter)
      late[at] = at->ranks;  // in a call to which all came, and it does not come out
    for (const auto& [one, ranks] : missing) {
      if (standing_in(*one) == nullptr) {
        late[one].add(ranks);
      } else if (seen.insert(one).second) {
        open.push_back(one);
      }
    }
  }
  std::vector<Missing> all;
  for (auto& [one, ranks] : late) all.push_back({one, std::move(ranks)});
  return all;
}

/// All have launched the waiter's call. Those that do something else than wait in it have not come to it: what it needs
/// stands on a device behind other work.
std::vector<Missing> not_yet_in(const Census& census, const RankClass& waiter) {
  const GroupReport* call = waiter.sample.waiting();
  std::vector<Missing> out;
  for (const auto& one : census.classes) {
    const GroupReport* group = group_named(one.sample, call->name);
    const FlightRecord* record = group == nullptr ? nullptr : group->find(call->waiting_seq);
    if (record != nullptr && record->state == CallState::kLaunched && one.sample.waiting() == nullptr) {
      out.push_back({&one, one.ranks});
    }
  }
  return out;
}

/// Since the last of all came to the waiter's call.
double seconds_since_all_came(const Census& census, const RankClass& waiter) {
  const GroupReport* call = waiter.sample.waiting();
  double least = call->last_waiting_seconds;
  for (const auto& one : census.classes) {
    const GroupReport* group = group_named(one.sample, call->name);
    if (group != nullptr && group->waiting_seq == call->waiting_seq)
      least = std::min(least, group->last_waiting_seconds);
  }
  return least;
}

bool makes_group(const RankClass& waiter) {
  const GroupReport* group = waiter.sample.waiting();
  const FlightRecord* call = group->find(group->waiting_seq);
  return call != nullptr && call->signature.op == Op::kNewGroup;
}

/// For how long nothing has moved in a rank that others have been waiting for. One that goes from block to block,
/// because it has more rows than they had, is at work.
double quiet_seconds(const RankReport& report, double waited) {
  if (!report.joined) return waited;
  if (const GroupReport* group = report.waiting()) return std::min(waited, group->waiting_seconds);
  return std::min(waited, report.phase_seconds);
}

Judgement late(const Census& census, const RankClass& waiter, double seconds, const JudgeOptions& options) {
  auto culprits = late_ones(census, waiter);
  if (culprits.empty()) culprits = not_yet_in(census, waiter);
  if (culprits.empty()) {
    if (some_are_unseen(census, *waiter.sample.waiting())) return {};
    seconds = seconds_since_all_came(census, waiter);
    // A group is connected by means of the transport, which may take a while.
    if (seconds < (makes_group(waiter) ? std::max(kGroupTakes, options.soft_seconds) : options.soft_seconds)) return {};
  }
  Diagnosis out{.fault = culprits.empty() ? Fault::kTransport : Fault::kStall, .exit_code = kCommunicationCode};
  const GroupReport* group = waiter.sample.waiting();
  const std::string waited = format_duration(seconds);
  double hard = 0, quiet = 0;
  if (culprits.empty()) {
    quiet = seconds;
    const FlightRecord* call = group->find(group->waiting_seq);
    hard = std::max(group->patience_seconds, options.hard_seconds[static_cast<size_t>(waiter.sample.phase)]);
    out.culprits = waiter.ranks;
    out.group = group->name;
    out.seq = group->waiting_seq;
    if (call != nullptr) {
      out.op = op_name(call->signature.op);
      out.label = call->label.view();
      out.sides.push_back({waiter.ranks, call->call(), std::string(call->site.view())});
    }
    out.headline = fmt::format("all ranks came to {}, but it does not end for {}", standing(waiter), waited);
    out.why = "the transport carries nothing or very little: a cut or very slow network, or a rank slow to copy";
    out.fix =
        "check the network between the hosts (bandwidth, firewall, MTU); choose another interface with "
        "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME";
    for (const auto& one : census.classes) out.places.push_back(place_of(one));
  } else {
    for (const auto& [one, ranks] : culprits) {
      out.culprits.add(ranks);
      out.places.push_back(place_of(*one));
      hard = std::max({hard, group->patience_seconds, options.hard_seconds[static_cast<size_t>(one->sample.phase)]});
      quiet = std::max(quiet, quiet_seconds(one->sample, seconds));
      if (out.stack.empty()) out.stack = one->sample.stack;
    }
    name_call(census, *culprits.front().of, out);
    const RankReport& first = culprits.front().of->sample;
    const char* what = first.process.in_kernel ? "blocked in the kernel" : "busy elsewhere";
    out.headline =
        fmt::format("{} {} {}: {}; {} {} for {}", out.culprits.phrase(), out.culprits.size() == 1 ? "is" : "are", what,
                    first.place(), waiter.ranks.phrase(), waiter.ranks.size() == 1 ? "waits" : "wait", waited);
    out.why = first.process.in_kernel
                  ? fmt::format("it waits for a disk or network file system{}",
                                first.process.waits_in.empty() ? "" : " (" + first.process.waits_in + ")")
                  : "it is alive and has not come to the call that the others are in";
    out.fix = fmt::format("if it may take so long, allow it: {}; otherwise look at what it does: {}; {}",
                          allow_longer(settings_of(first), phase_name(first.phase), hard),
                          first.phase == Phase::kData
                              ? "the disk or host that the data come from, " + data_workers(settings_of(first))
                              : "its stack",
                          go_on(settings_of(first)));
  }
  return {.verdict = quiet >= hard ? Verdict::kEnd : Verdict::kNotice,
          .diagnosis = std::move(out),
          .waited_seconds = seconds};
}

}  // namespace

Judgement judge_late(const Census& census, const JudgeOptions& options) {
  const RankClass* longest = nullptr;
  for (const auto& one : census.classes) {
    const GroupReport* group = one.sample.waiting();
    if (group == nullptr || group->waiting_seconds < options.soft_seconds) continue;
    const auto weight = [](const GroupReport& call) { return std::pair(call.stands, call.waiting_seconds); };
    if (longest == nullptr || weight(*group) > weight(*longest->sample.waiting())) longest = &one;
  }
  if (longest == nullptr) return {};
  return late(census, *longest, longest->sample.waiting()->waiting_seconds, options);
}

namespace {

/// Of which job the launcher's variables say it.
bool is_told_of_hosts(const Settings& job, bool several) {
  const auto all = job.given.find("WORLD_SIZE"), here = job.given.find("LOCAL_WORLD_SIZE");
  return all != job.given.end() && here != job.given.end() && (all->second != here->second) == several;
}

/// With the variables that the waiting ranks have, where all ranks stand on one machine.
std::string start_the_missing(const RankSet& missing, const RankReport& waiter) {
  const Settings job = settings_of(waiter);
  std::string variables;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const auto at = job.given.find(name);
    if (at != job.given.end()) variables += " " + as_given(name, at->second);
  }
  const bool one_node = is_told_of_hosts(job, /*several=*/false);
  const std::string own =
      one_node && missing.size() == 1 ? fmt::format("RANK={0} LOCAL_RANK={0}", missing.first()) : "RANK";
  return fmt::format("start {} too, by the same command with {}{}; or set WORLD_SIZE ({}) to {}", missing.phrase(), own,
                     variables.empty() ? ", the same MASTER_ADDR and the same MASTER_PORT" : variables,
                     world_size_flags(job), waiter.world_size - missing.size());
}

/// They are there, and have not come to the meeting.
std::string wait_for_the_late(const RankClass& waiter, const RankSet& late, double hard) {
  const Settings job = settings_of(waiter.sample);
  return fmt::format(
      "if {} may need so long to start, allow it: {}; otherwise look at what it does: its own lines, the disk that its "
      "libraries and modules come from, whether it reaches the address above; {}",
      late.phrase(), allow_longer(job, phase_name(Phase::kStart), hard), go_on(job));
}

}  // namespace

/// Behind kWaitsForRank; 0: it has not reached the meeting point.
int first_awaited(std::string_view detail) {
  int rank = 0;
  if (const size_t at = detail.find(kWaitsForRank); at != std::string_view::npos)
    std::from_chars(detail.data() + at + kWaitsForRank.size(), detail.data() + detail.size(), rank);
  return rank;
}

/// What keeps this host from rank 0's, where several hosts were started.
bool may_be_astray(const RankReport& waiter) {
  return is_told_of_hosts(settings_of(waiter), /*several=*/true) && waiter.detail.starts_with(kMeeting) &&
         waiter.detail.find(kWaitsForRank) == std::string::npos;
}

/// They have met, and do not reach each other.
Diagnosis not_connected(const RankClass& waiter) {
  Diagnosis out{.fault = Fault::kAbsent, .exit_code = kCommunicationCode};
  out.culprits = waiter.ranks;
  out.headline = fmt::format("{} came to the meeting point, and {} not connected to the other ranks within {}",
                             waiter.ranks.phrase(), waiter.ranks.size() == 1 ? "is" : "are",
                             format_duration(waiter.sample.phase_seconds));
  out.places.push_back(place_of(waiter));
  if (is_told_of_hosts(settings_of(waiter.sample), /*several=*/true)) {
    out.why = "the hosts reach the meeting point, and not each other";
    out.fix =
        "the hosts must reach each other on every port, not on MASTER_PORT alone: look at firewalls between them; "
        "GLOO_SOCKET_IFNAME chooses another network interface";
    return out;
  }
  out.why = "all ranks of this host are there, and one of the connections between them was never made";
  out.fix =
      "start the job again, by another MASTER_PORT where one is given: after a restart connections of before may be in "
      "the way; GLOO_SOCKET_IFNAME=lo keeps to this host";
  return out;
}

/// Nobody is missing, and nobody has come further than to the meeting.
bool all_are_meeting(const Census& census) {
  return std::ranges::all_of(census.classes, [](const RankClass& one) {
    return one.sample.joined && one.sample.phase == Phase::kStart && one.sample.life == Life::kStarting &&
           one.sample.waiting() == nullptr;
  });
}

/// Some have met and wait for others that never came.
Judgement judge_absent(const Census& census, const JudgeOptions& options) {
  const RankClass* waiter = nullptr;
  for (const auto& one : census.classes) {
    const RankReport& report = one.sample;
    if (report.joined && report.phase == Phase::kStart && !report.detail.empty() && report.life == Life::kStarting &&
        report.phase_seconds >= options.start_seconds && report.waiting() == nullptr) {
      waiter = &one;
    }
  }
  if (waiter == nullptr) return {};
  Diagnosis out{.fault = Fault::kAbsent, .exit_code = kCommunicationCode};
  RankSet unjoined, running;
  for (const auto& one : census.classes) {
    if (one.sample.joined) continue;
    unjoined.add(one.ranks);
    if (one.sample.pid > 0) running.add(one.ranks);
    out.places.push_back(place_of(one));
  }
  const int expected = waiter->sample.world_size;
  const double hard = options.hard_seconds[static_cast<size_t>(Phase::kStart)];
  const auto judged = [&](Diagnosis found) {
    const double waited = waiter->sample.phase_seconds;
    return Judgement{.verdict = waited >= hard ? Verdict::kEnd : Verdict::kNotice,
                     .diagnosis = std::move(found),
                     .waited_seconds = waited};
  };
  const bool connects = waiter->sample.detail == kConnecting;
  if (connects && is_told_of_hosts(settings_of(waiter->sample), /*several=*/true))
    return judged(not_connected(*waiter));
  out.culprits = unjoined;
  if (unjoined.empty()) {
    const std::vector<int> here = census.all().ranks();
    for (int rank = first_awaited(waiter->sample.detail); rank < expected; ++rank) {
      if (!std::binary_search(here.begin(), here.end(), rank)) out.culprits.add(rank);
    }
  }
  if (connects || out.culprits.empty()) {  // it may be slow, and which step of it that is is not kept apart
    const bool stuck = all_are_meeting(census) && waiter->sample.phase_seconds >= hard;
    return stuck ? judged(not_connected(*waiter)) : Judgement{};
  }
  out.headline = fmt::format("{} of {} did not come to the meeting within {}: {}", out.culprits.phrase(), expected,
                             format_duration(waiter->sample.phase_seconds), waiter->sample.detail);
  out.places.push_back(place_of(*waiter));
  if (running.empty() && may_be_astray(waiter->sample)) {
    out.why = fmt::format(
        "{} found nobody there: that address does not lead to rank 0's host from this host, or rank 0 was not "
        "started",
        waiter->ranks.phrase());
    out.fix =
        "look from this host whether MASTER_ADDR is rank 0's host (its name, the network, firewalls) and MASTER_PORT "
        "open "
        "there, and whether rank 0 was started: the same MASTER_ADDR on every host, and not localhost";
    return judged(std::move(out));
  }
  out.why =
      running.empty()
          ? fmt::format("WORLD_SIZE says {} ranks, and those were not started, or cannot reach this address", expected)
          : fmt::format("{} runs, and has not come to the meeting point", running.phrase());
  out.fix =
      running.empty() ? start_the_missing(out.culprits, waiter->sample) : wait_for_the_late(*waiter, running, hard);
  return judged(std::move(out));
}

}  // namespace lockstep
