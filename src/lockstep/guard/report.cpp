#include "lockstep/guard/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/guard/judge_rules.h"

namespace lockstep {
namespace {

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 ? 0 : std::max(0.0, static_cast<double>(to_ns - bounded(from_ns)) * 1e-9);
}

template <typename Enum>
Enum clamped(Enum value, Enum last) {
  return value > last ? last : value;
}

GroupReport read_group(const Group& group, size_t tail, int64_t now_ns) {
  const uint64_t id = group.id.load(std::memory_order_acquire);
  GroupReport report{.name = std::string(group.name.read_any().view())};
  if (group.num_members.load(std::memory_order_relaxed) > 0) {
    report.members = RankSet::of_bits(group.members.read_any().bits);
  }
  report.patience_seconds = static_cast<double>(bounded(group.patience_ns.load(std::memory_order_relaxed))) * 1e-9;
  if (group.closed.load(std::memory_order_acquire) != 0) {  // nobody can say that it has not come to a call
    report.entered = kUnseen;
    return report;
  }
  report.tail = group.ring.last(tail);
  report.entered = report.tail.empty() ? 0 : report.tail.back().seq;
  report.history = report.tail.empty() ? 0 : report.tail.back().history;
  report.path = report.tail.empty() ? 0 : report.tail.back().path;
  report.nan_calls = group.ring.nan_calls();
  report.left = group.left.load(std::memory_order_acquire) != 0;
  report.waiting_seq = group.waiting_seq.load(std::memory_order_acquire);
  if (report.waiting_seq > 0) {
    report.stands = group.stands.load(std::memory_order_relaxed) != 0;
    report.waiting_seconds = seconds_between(group.waiting_since_ns.load(std::memory_order_relaxed), now_ns);
    report.last_waiting_seconds = report.waiting_seconds;
  }
  // Its place was given to another group meanwhile: this is neither.
  if (group.closed.load(std::memory_order_acquire) != 0 || group.id.load(std::memory_order_acquire) != id)
    return {.name = report.name, .members = report.members, .entered = kUnseen};
  return report;
}

}  // namespace

const FlightRecord* GroupReport::find(uint64_t seq) const {
  const auto at = std::lower_bound(tail.begin(), tail.end(), seq,
                                   [](const FlightRecord& record, uint64_t wanted) { return record.seq < wanted; });
  return at != tail.end() && at->seq == seq ? &*at : nullptr;
}

const GroupReport* RankReport::waiting() const {
  const GroupReport* open = nullptr;
  for (const auto& group : groups) {
    if (group.waiting_seq > 0 && (open == nullptr || (group.stands && !open->stands))) open = &group;
  }
  return open;
}

std::string RankReport::place() const {
  if (!joined) return "has not joined the roll call";
  std::string text(phase_text(phase));
  // The line of a call that is over: where the rank stands by now only its stack can tell.
  const FlightRecord* last = waiting() == nullptr ? last_call(*this) : nullptr;
  const bool is_past = last != nullptr && last->state == CallState::kDone && last->site.view() == detail;
  if (!detail.empty()) text += fmt::format(" ({}{})", is_past ? "its last call at " : "", detail);
  if (phase_seconds >= 1) text += fmt::format(" for {}", format_duration(phase_seconds));
  if (step > 0) text += fmt::format(", after step {}", step);
  return text;
}

RankReport read_board(const Board& board, size_t tail) {
  const int64_t now = steady_ns();
  const Identity identity = board.identity.read_any();
  RankReport report{.rank = static_cast<int>(identity.rank),
                    .node = static_cast<int>(identity.node),
                    .local_rank = static_cast<int>(identity.local_rank),
                    .world_size = static_cast<int>(std::clamp<int64_t>(identity.world_size, 0, kMaxRanks)),
                    .pid = identity.pid,
                    .host = std::string(identity.host.view()),
                    .joined = true,
                    .life = clamped(board.life.load(std::memory_order_acquire), Life::kFinished),
                    .exit_code = static_cast<int>(board.exit_code.load()),
                    .phase = clamped(board.phase.load(std::memory_order_relaxed), Phase::kEnd),
                    .step = board.step.load(std::memory_order_relaxed),
                    .pace = board.pace.read_any(),
                    .read_ns = now,
                    .realtime_offset_ns = bounded(identity.realtime_offset_ns)};
  report.aborting_seconds = seconds_between(board.aborts_since_ns.load(std::memory_order_acquire), now);
  report.asked_seconds = seconds_between(board.asked_since_ns.load(std::memory_order_acquire), now);
  const Place place = board.place.read_any();
  report.detail = place.detail.view();
  report.phase_seconds = seconds_between(place.since_ns, now);
  for (const auto& group : board.used_groups()) report.groups.push_back(read_group(group, tail, now));
  report.no_room =
      static_cast<int>(board.no_room.load(std::memory_order_relaxed) & (Board::kNoPairs | Board::kNoGroups));
  if (board.last_words.version() > 0) {
    const LastWords words = board.last_words.read_any();
    report.last_words = {.exit_code = static_cast<int>(words.exit_code),
                         .at_ns = bounded(words.at_ns),
                         .secondary = words.secondary != 0,
                         .shared = words.shared != 0,
                         .message = std::string(words.message.view()),
                         .hint = std::string(words.hint.view()),
                         .place = std::string(words.place.view())};
  }
  if (board.facts.version() > 0) report.facts = board.facts.read_any().view();
  for (const auto& structure : board.structures) {
    if (structure.version() > 0) report.structures.emplace_back(structure.read_any().view());
  }
  if (board.stack_given.load(std::memory_order_acquire) > 0) report.stack = board.stack.read_any().view();
  if (board.post_mortem_dir.version() > 0) report.post_mortem_dir = board.post_mortem_dir.read_any().view();
  return report;
}

}  // namespace lockstep
