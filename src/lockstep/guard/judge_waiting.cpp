// Who waits for whom, and who is late.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/settings.h"
#include "lockstep/guard/strayed.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {
namespace {

constexpr double kCycleHolds = 1.0;  // seconds for which a circle of waiting must have stood

std::string standing(const RankClass& one) {
  const GroupReport* group = one.sample.waiting();
  const FlightRecord* call = group->find(group->waiting_seq);
  return fmt::format("#{} of group \"{}\"{}", group->waiting_seq, group->name,
                     call == nullptr ? "" : ": " + call->call());
}

/// One alone that is not where it used to be at this point has left the path; the others wait where they always did.
void name_the_strayed(const std::vector<const RankClass*>& circle, Diagnosis& out) {
  const RankClass* alone = nullptr;
  std::optional<Strayed> how;
  for (const auto* one : circle) {
    auto found = strayed(one->sample);
    if (!found) continue;
    if (alone != nullptr) return;
    alone = one;
    how = std::move(found);
  }
  if (alone == nullptr) return;
  const FlightRecord& usual = how->skipped.front();
  const std::string who = alone->ranks.phrase(), here = alone->sample.waiting()->name;
  out.culprits = alone->ranks;
  out.between_two = false;
  out.op = op_name(usual.signature.op);
  out.label = usual.label.view();
  if (how->moved) {
    out.headline = fmt::format("{} made \"{}\" in group \"{}\", where it used to make it in group \"{}\"", who,
                               usual.label.view(), here, how->group);
    out.why = "the others are in that call of the group where it belongs, and each side waits for the other";
    out.fix =
        fmt::format("make this call in one group on all ranks: look at {}", last_call(alone->sample)->site.view());
    return;
  }
  const size_t count = how->skipped.size();
  out.headline = fmt::format("{} skipped {} that it used to make here, and waits in group \"{}\"", who,
                             count == 1 ? "a call" : fmt::format("{} calls", count), here);
  out.why = fmt::format("{}{} at {} used to come next, and the others are still before or in it", usual.call(),
                        count == 1 ? "" : fmt::format(" and {} more", count - 1), usual.site.view());
  out.fix = fmt::format(
      "every rank must make the same calls in the same order: look for a branch on the rank or on the data, or an "
      "error "
      "that was caught, around {}",
      usual.site.view());
}

}  // namespace

namespace {

bool receives(const RankClass* one) {
  const GroupReport* group = one->sample.waiting();
  const FlightRecord* call = group->find(group->waiting_seq);
  return call != nullptr && call->signature.op == Op::kRecv;
}

}  // namespace

std::optional<Diagnosis> deadlock(const Census& census) {
  for (const auto& start : census.classes) {
    if (standing_in(start) == nullptr) continue;
    std::vector<const RankClass*> path{&start};
    while (true) {
      const RankClass* next = nullptr;
      for (const auto& [one, ranks] : missing_for(census, *path.back(), standing_in(*path.back()))) {
        const GroupReport* call = standing_in(*one);
        if (call != nullptr && call->waiting_seconds >= kCycleHolds &&
            call->name != path.back()->sample.waiting()->name) {
          next = one;
        }
      }
      if (next == nullptr || path.front()->sample.waiting()->waiting_seconds < kCycleHolds) break;
      const auto closed = std::find(path.begin(), path.end(), next);
      if (closed == path.end()) {
        path.push_back(next);
        continue;
      }
      path.erase(path.begin(), closed);
      std::stable_sort(path.begin(), path.end(),
                       [](const auto* a, const auto* b) { return a->ranks.size() > b->ranks.size(); });
      Diagnosis out{.fault = Fault::kDeadlock, .exit_code = kCommunicationCode};
      out.between_two = path[0]->ranks.size() == path[1]->ranks.size();
      for (size_t i = 1; i < path.size(); ++i) out.culprits.add(path[i]->ranks);
      const bool all_receive = std::ranges::all_of(path, receives);
      out.headline = fmt::format("{} and {} wait for each other {}", path[1]->ranks.phrase(), path[0]->ranks.phrase(),
                                 all_receive ? "to send: each receives first" : "in different groups");
      for (const auto* one : path) {
        const GroupReport* group = one->sample.waiting();
        const FlightRecord* call = group->find(group->waiting_seq);
        out.sides.push_back({one->ranks, standing(*one), call == nullptr ? "" : std::string(call->site.view())});
        out.places.push_back(place_of(*one));
        if (one != path[1] || call == nullptr) continue;
        out.op = op_name(call->signature.op);
        out.label = call->label.view();
      }
      out.why = "each side is in a call of a group that the other has not come to, and can do nothing else";
      out.fix = "call the groups in one order on all ranks: look at the two places above";
      if (all_receive) {
        out.why = "what each of them waits for is sent by the other after what it waits for itself";
        out.fix =
            "let one side send first, or give both calls together (batch_isend_irecv): look at the two places above";
      } else {
        name_the_strayed(path, out);
      }
      return out;
    }
  }
  return std::nullopt;
}

// ---- Somebody is late.

namespace {

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
  Diagnosis out{.fault = culprits.empty() ? Fault::kTransport : Fault::kStall, .exit_code = kCommunicationCode};
  const GroupReport* group = waiter.sample.waiting();
  const std::string waited = format_duration(seconds);
  double hard = 0, quiet = 0;
  if (culprits.empty()) {
    quiet = seconds;
    const FlightRecord* call = group->find(group->waiting_seq);
    hard = options.hard_seconds[static_cast<size_t>(waiter.sample.phase)];
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
      hard = std::max(hard, options.hard_seconds[static_cast<size_t>(one->sample.phase)]);
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
    out.fix = fmt::format(
        "if it may take so long, allow it: {}; otherwise look at what it does: {}; {}",
        allow_longer(settings_of(first), phase_name(first.phase), hard),
        first.phase == Phase::kData ? "the disk or host that the data come from, --num_workers" : "its stack",
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

/// With the variables that the waiting ranks have, where all ranks stand on one machine.
std::string start_the_missing(const RankSet& missing, const RankReport& waiter) {
  const Settings job = settings_of(waiter);
  std::string variables;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const auto at = job.given.find(name);
    if (at != job.given.end()) variables += " " + as_given(name, at->second);
  }
  const auto all = job.given.find("WORLD_SIZE"), here = job.given.find("LOCAL_WORLD_SIZE");
  const bool one_node = all != job.given.end() && here != job.given.end() && all->second == here->second;
  const std::string own =
      one_node && missing.size() == 1 ? fmt::format("RANK={0} LOCAL_RANK={0}", missing.first()) : "RANK";
  return fmt::format("start {} too, by the same command with {}{}; or set WORLD_SIZE (--nproc, --nnodes) to {}",
                     missing.phrase(), own,
                     variables.empty() ? ", the same MASTER_ADDR and the same MASTER_PORT" : variables,
                     waiter.world_size - missing.size());
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
  out.culprits = unjoined;
  if (unjoined.empty()) {
    const std::vector<int> here = census.all().ranks();
    for (int rank = 0; rank < expected; ++rank) {
      if (!std::binary_search(here.begin(), here.end(), rank)) out.culprits.add(rank);
    }
  }
  if (out.culprits.empty()) return {};
  out.headline = fmt::format("{} of {} did not come to the meeting within {}: {}", out.culprits.phrase(), expected,
                             format_duration(waiter->sample.phase_seconds), waiter->sample.detail);
  out.places.push_back(place_of(*waiter));
  const double hard = options.hard_seconds[static_cast<size_t>(Phase::kStart)];
  out.why =
      running.empty()
          ? fmt::format("WORLD_SIZE says {} ranks, and those were not started, or cannot reach this address", expected)
          : fmt::format("{} runs, and has not come to the meeting point", running.phrase());
  out.fix =
      running.empty() ? start_the_missing(out.culprits, waiter->sample) : wait_for_the_late(*waiter, running, hard);
  return {.verdict = waiter->sample.phase_seconds >= hard ? Verdict::kEnd : Verdict::kNotice,
          .diagnosis = std::move(out),
          .waited_seconds = waiter->sample.phase_seconds};
}

}  // namespace lockstep
