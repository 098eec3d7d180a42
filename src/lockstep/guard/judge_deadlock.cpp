// Sides that wait for each other in different groups: a circle, which nothing opens.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/strayed.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {
namespace {

constexpr double kCycleHolds = 1.0;  // seconds for which a circle of waiting must have stood

using Circle = std::vector<const RankClass*>;  // each waits for the next, the last for the first

const FlightRecord* call_of(const RankClass& one) {
  const GroupReport* group = one.sample.waiting();
  return group->find(group->waiting_seq);
}

/// Beginning at `start`; empty: somebody on the way is not waiting, or not for long enough.
Circle circle_from(const Census& census, const RankClass& start) {
  Circle path{&start};
  while (true) {
    const RankClass* next = nullptr;
    for (const auto& [one, ranks] : missing_for(census, *path.back(), standing_in(*path.back()))) {
      const GroupReport* call = standing_in(*one);
      if (call != nullptr && call->waiting_seconds >= kCycleHolds &&
          call->name != path.back()->sample.waiting()->name) {
        next = one;
      }
    }
    if (next == nullptr || path.front()->sample.waiting()->waiting_seconds < kCycleHolds) return {};
    const auto closed = std::find(path.begin(), path.end(), next);
    if (closed == path.end()) {
      path.push_back(next);
      continue;
    }
    path.erase(path.begin(), closed);
    return path;
  }
}

/// One alone that is not where it used to be at this point has left the path; the others wait where they always did.
bool name_the_strayed(const Circle& circle, Diagnosis& out) {
  const RankClass* alone = nullptr;
  std::optional<Strayed> how;
  for (const auto* one : circle) {
    auto found = strayed(one->sample);
    if (!found) continue;
    if (alone != nullptr) return false;
    alone = one;
    how = std::move(found);
  }
  if (alone == nullptr) return false;
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
    return true;
  }
  const size_t count = how->skipped.size();
  out.headline = fmt::format("{} skipped {} that it used to make here, and waits in group \"{}\"", who,
                             count == 1 ? "a call" : fmt::format("{} calls", count), here);
  out.why = fmt::format("{}{} at {} used to come next, and the others are still before or in it", usual.call(),
                        count == 1 ? "" : fmt::format(" and {} more", count - 1), usual.site.view());
  out.fix = fmt::format(
      "every rank must make the same calls in the same order: look for a branch on the rank or on the data, or an "
      "error that was caught, around {}",
      usual.site.view());
  return true;
}

/// Of a call that concerns these two, and that one of them does not make: it stands in one that concerns others too.
bool name_the_unanswering(const Circle& circle, Diagnosis& out) {
  const auto asks = std::ranges::find_if(circle, [](const RankClass* one) {
    const FlightRecord* call = call_of(*one);
    return call != nullptr && (call->signature.between_two() || call->signature.op == Op::kNewGroup);
  });
  if (circle.size() != 2 || asks == circle.end()) return false;
  const RankClass& other = **(asks == circle.begin() ? circle.begin() + 1 : circle.begin());
  const FlightRecord *call = call_of(**asks), *elsewhere = call_of(other);
  if (elsewhere == nullptr || elsewhere->signature.between_two()) return false;
  const bool pair = call->signature.between_two(), sends = call->signature.op == Op::kSend;
  const int peer = call->signature.root;
  if (pair && !other.ranks.contains(peer)) return false;
  out.culprits = pair ? RankSet{peer} : (*asks)->sample.waiting()->of(other.ranks);
  out.between_two = false;
  out.op = op_name(call->signature.op);
  out.label = call->label.view();
  const std::string who = (*asks)->ranks.phrase(), does = out.culprits.size() == 1 ? "does" : "do";
  const std::string missed = pair ? fmt::format("{} what {} {}", sends ? "receive" : "send", who,
                                                sends ? "sends to it" : "waits to receive from it")
                                  : fmt::format("come to {}, as {} did", call->call(), who);
  out.headline = fmt::format("{} {} not {}, and {} in {}", out.culprits.phrase(), does, missed,
                             out.culprits.size() == 1 ? "waits" : "wait", standing(other));
  out.why = pair ? fmt::format("{} has no other side, and each of the two waits for the other", call->call())
                 : "all ranks of a group must make it, and each side waits for the other";
  out.fix = fmt::format("{}: look for a branch on the rank or on the data around {} and {}",
                        pair ? "let every send have its receive" : "make groups on all ranks, in one order",
                        call->site.view(), elsewhere->site.view());
  return true;
}

/// Who stands in the other side of what `one` does, to or from it, while that one does it with somebody else. nullptr: nobody.
const RankClass* meant_by(const Census& census, const RankClass& one, const FlightRecord& call) {
  const RankClass* found = nullptr;
  for (const auto& other : census.classes) {
    const GroupReport* group = standing_in(other);
    const FlightRecord* theirs = group == nullptr ? nullptr : group->find(group->waiting_seq);
    if (theirs == nullptr || group->waiting_seconds < kCycleHolds || !theirs->signature.between_two()) continue;
    if (theirs->signature.op == call.signature.op || !one.ranks.contains(theirs->signature.root)) continue;
    if (other.ranks.contains(call.signature.root)) return nullptr;  // with that one: it is their order, or their tags
    const GroupReport* own = group_named(one.sample, group->name);
    if (own == nullptr || own->entered < group->waiting_seq) found = &other;
  }
  return found;
}

/// One sends to a rank that takes nothing, or waits for one that sends nothing, and a third waits for it to do so: it has named another rank
/// than the one that it means.
bool name_the_misdirected(const Census& census, const Circle& circle, Diagnosis& out) {
  for (const RankClass* one : circle) {
    const FlightRecord* call = call_of(*one);
    if (call == nullptr || !call->signature.between_two()) continue;
    const int peer = call->signature.root;
    const RankClass* answers = census.of(peer);
    const FlightRecord* elsewhere =
        answers == nullptr || standing_in(*answers) == nullptr ? nullptr : call_of(*answers);
    const RankClass* third = meant_by(census, *one, *call);
    if (third == nullptr || elsewhere == nullptr || elsewhere->signature.between_two()) continue;
    const FlightRecord& theirs = *call_of(*third);
    const bool sends = call->signature.op == Op::kSend;
    const std::string who = one->ranks.phrase(), other = third->ranks.phrase();
    out.culprits = one->ranks;
    out.between_two = false;
    out.op = op_name(call->signature.op);
    out.label = call->label.view();
    out.headline = fmt::format("{} {} rank {}, which does not {} it, while {} {} {}", who,
                               sends ? "sends to" : "waits to receive from", peer, sends ? "receive from" : "send to",
                               other, sends ? "waits to receive from" : "sends to", who);
    out.why = fmt::format("{} has no other side, nor has {}: the two would meet if {} named {}", call->call(),
                          theirs.call(), who, other);
    out.fix = fmt::format("let {} at {} name {} as its {}, or let {} do without it at {}", call->call(),
                          call->site.view(), other, sends ? "destination" : "source", other, theirs.site.view());
    if (std::ranges::find(circle, third) == circle.end()) {
      out.sides.push_back({third->ranks, standing(*third), std::string(theirs.site.view())});
      out.places.push_back(place_of(*third));
    }
    return true;
  }
  return false;
}

/// All of them send, or all of them receive, and what each waits for comes after what it does first.
bool explain_pairs(const Circle& circle, Diagnosis& out) {
  const auto all = [&](Op op) {
    return std::ranges::all_of(circle, [op](const RankClass* one) {
      const FlightRecord* call = call_of(*one);
      return call != nullptr && call->signature.op == op;
    });
  };
  const bool receive = all(Op::kRecv);
  if (!receive && !all(Op::kSend)) return false;
  out.headline = fmt::format("{} and {} wait for each other {}", circle[1]->ranks.phrase(), circle[0]->ranks.phrase(),
                             receive ? "to send: each receives first" : "to receive: each sends first");
  out.why = fmt::format("what each of them waits for is {} by the other after what it waits for itself",
                        receive ? "sent" : "received");
  out.fix = fmt::format(
      "let one side {} first, or give both calls together (batch_isend_irecv): look at the two places above",
      receive ? "send" : "receive");
  return true;
}

/// One sends to the other, which waits to receive from it, and yet they do not meet: pairs are told apart by group and tag.
bool explain_tags(const Circle& circle, Diagnosis& out) {
  if (circle.size() != 2) return false;
  const FlightRecord *one = call_of(*circle[0]), *other = call_of(*circle[1]);
  if (one == nullptr || other == nullptr || !one->signature.between_two() || !other->signature.between_two() ||
      one->signature.op == other->signature.op || !circle[1]->ranks.contains(one->signature.root) ||
      !circle[0]->ranks.contains(other->signature.root)) {
    return false;
  }
  const size_t sender = one->signature.op == Op::kSend ? 0 : 1;
  out.headline = fmt::format("{} sends to {} under another tag, or in another group, than the one that it receives by",
                             circle[sender]->ranks.phrase(), circle[1 - sender]->ranks.phrase());
  out.why = "what is sent waits for a receive of the same group and tag, and the receive for such a send";
  out.fix = fmt::format("give send and receive one tag and one group: look at {} and {}", one->site.view(),
                        other->site.view());
  return true;
}

}  // namespace

std::string standing(const RankClass& one) {
  const GroupReport* group = one.sample.waiting();
  const FlightRecord* call = group->find(group->waiting_seq);
  if (call != nullptr && call->signature.op == Op::kNewGroup) return call->call();
  return fmt::format("#{} of group \"{}\"{}", group->waiting_seq, group->name,
                     call == nullptr ? "" : ": " + call->call());
}

std::optional<Diagnosis> deadlock(const Census& census) {
  for (const auto& start : census.classes) {
    if (standing_in(start) == nullptr) continue;
    Circle circle = circle_from(census, start);
    if (circle.empty()) continue;
    std::ranges::stable_sort(circle, [](const auto* a, const auto* b) { return a->ranks.size() > b->ranks.size(); });
    Diagnosis out{.fault = Fault::kDeadlock, .exit_code = kCommunicationCode};
    out.between_two = circle[0]->ranks.size() == circle[1]->ranks.size();
    for (size_t i = 1; i < circle.size(); ++i) out.culprits.add(circle[i]->ranks);
    for (const auto* one : circle) {
      const FlightRecord* call = call_of(*one);
      out.sides.push_back({one->ranks, standing(*one), call == nullptr ? "" : std::string(call->site.view())});
      out.places.push_back(place_of(*one));
      if (one != circle[1] || call == nullptr) continue;
      out.op = op_name(call->signature.op);
      out.label = call->label.view();
    }
    if (explain_pairs(circle, out) || explain_tags(circle, out)) return out;
    out.headline = fmt::format("{} and {} wait for each other in different groups", circle[1]->ranks.phrase(),
                               circle[0]->ranks.phrase());
    out.why = "each side is in a call of a group that the other has not come to, and can do nothing else";
    out.fix = "call the groups in one order on all ranks: look at the two places above";
    if (name_the_misdirected(census, circle, out)) return out;
    if (!name_the_strayed(circle, out)) (void)name_the_unanswering(circle, out);
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep
