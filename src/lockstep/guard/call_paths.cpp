#include "lockstep/guard/call_paths.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kLongestGap = 64;

/// How many calls of `ahead` from `seq + shift` on are those of `behind` from `seq` on; 0 unless all of them are.
size_t stretch_alike(const GroupReport& ahead, const GroupReport& behind, uint64_t seq, size_t shift, Alike same) {
  for (size_t alike = 0;; ++alike) {
    const FlightRecord* one = ahead.find(seq + shift + alike);
    const FlightRecord* other = behind.find(seq + alike);
    if (one == nullptr || other == nullptr) return alike;
    if (!same(*one, *other)) return 0;
  }
}

/// How many calls `ahead` made at `seq` that `behind` left out: the least shift after which the two go on alike. 0 when
/// there is none.
size_t gap_seen(const GroupReport& ahead, const GroupReport& behind, uint64_t seq, Alike same) {
  for (size_t shift = 1; shift <= kLongestGap; ++shift) {
    if (stretch_alike(ahead, behind, seq, shift, same) > 0) return shift;
  }
  return 0;
}

/// The same from habit, when both are stuck where they parted: how far after an earlier call like that of `ahead` came
/// one like that of `behind`. Training repeats itself, line by line: an equal call from another one says little.
size_t gap_expected(const GroupReport& ahead, const GroupReport& behind, uint64_t seq, Alike same) {
  const FlightRecord *here = ahead.find(seq), *there = behind.find(seq);
  for (const bool by_line : {true, false}) {
    for (uint64_t earlier = seq - 1; const FlightRecord* past = ahead.find(earlier); --earlier) {
      if (!same(*past, *here) || past->site.view() != here->site.view()) continue;
      for (size_t shift = 1; shift <= kLongestGap && earlier + shift < seq; ++shift) {
        const FlightRecord* next = ahead.find(earlier + shift);
        if (next != nullptr && (by_line ? same_line(*next, *there) : same(*next, *there))) return shift;
      }
    }
  }
  return 0;
}

/// The smaller one: a loop brings every call again after a while.
Gap smaller(size_t skipped, size_t extra) {
  if (skipped > 0 && (extra == 0 || skipped <= extra)) return {.skipped = skipped};
  return {.extra = extra};
}

/// What each of two that are stuck where they parted would have left out or made besides. Who leaves what he used to do has left
/// out what comes there, and who goes on as ever while the other turns elsewhere makes more. Where habit does not tell, a loop
/// brings every call again after a while, and the smaller number counts, unless the two are of one size.
Gap gap_by_habit(const GroupReport& odd, const GroupReport& usual, uint64_t seq, Alike same) {
  constexpr size_t kFew = 2, kAlike = 4;
  const FlightRecord &mine = *odd.find(seq), &theirs = *usual.find(seq);
  const size_t skipped = gap_expected(usual, odd, seq, same), extra = gap_expected(odd, usual, seq, same);
  const bool leaves = !as_ever(odd, seq, same), turns = !as_ever(usual, seq, same);
  if (leaves != turns && (leaves ? skipped : extra) == 0) return {};
  if (leaves != turns && turns) return {.extra = extra};
  // Other modules of one line: of a pass that runs others of them, and not one behind.
  const size_t smallest = std::min(skipped > 0 ? skipped : extra, extra > 0 ? extra : skipped);
  if (mine.site.view() == theirs.site.view() && mine.label.view() != theirs.label.view() && smallest > kFew) return {};
  if (smallest > kFew && skipped > 0 && extra > 0 && std::max(skipped, extra) < kAlike * smallest) {
    return {.skipped = skipped, .extra = extra};
  }
  return smaller(skipped, extra);
}

}  // namespace

bool same_call(const FlightRecord& a, const FlightRecord& b) {
  return a.signature.agrees_with(b.signature) && a.label.view() == b.label.view();
}

bool same_line(const FlightRecord& a, const FlightRecord& b) {
  return same_call(a, b) && a.site.view() == b.site.view();
}

const FlightRecord* habit(const GroupReport& group, uint64_t seq, Alike same) {
  constexpr size_t kContext = 16;
  const FlightRecord* best = nullptr;
  size_t most = 0;
  for (uint64_t past = seq - 1; group.find(past) != nullptr; --past) {
    size_t alike = 0;
    for (; alike < kContext; ++alike) {
      const FlightRecord *one = group.find(past - 1 - alike), *other = group.find(seq - 1 - alike);
      if (one == nullptr || other == nullptr || !same(*one, *other)) break;
    }
    if (alike <= most) continue;
    most = alike;
    best = group.find(past);
  }
  return best;
}

bool as_ever(const GroupReport& group, uint64_t seq, Alike same) {
  const FlightRecord* usual = habit(group, seq, same);
  return usual != nullptr && same(*usual, *group.find(seq));
}

Gap gap_between(const GroupReport& odd, const GroupReport& usual, uint64_t seq, Alike same) {
  const FlightRecord &mine = *odd.find(seq), &theirs = *usual.find(seq);
  // From one line by one name it is one call; without a name it is where it only carries something else.
  const bool one_kind = mine.signature.op == theirs.signature.op && (mine.signature.dtype != theirs.signature.dtype ||
                                                                     mine.signature.reduce != theirs.signature.reduce);
  const bool one_spot = mine.label.view() == theirs.label.view() && mine.site.view() == theirs.site.view() &&
                        (!mine.label.view().empty() || one_kind);
  const Gap seen = smaller(gap_seen(usual, odd, seq, same), gap_seen(odd, usual, seq, same));
  const size_t in_place = stretch_alike(odd, usual, seq + 1, 0, same);
  const size_t shifted = seen.skipped > 0 ? stretch_alike(usual, odd, seq, seen.skipped, same)
                                          : stretch_alike(odd, usual, seq, std::max<size_t>(seen.extra, 1), same);
  if (shifted > in_place || (shifted == in_place && shifted > 0 && !one_spot)) return seen;
  if (in_place > 0 || one_spot) return {};
  return gap_by_habit(odd, usual, seq, same);
}

bool swapped(const GroupReport& a, const GroupReport& b, uint64_t seq, Alike same) {
  const auto *a0 = a.find(seq), *a1 = a.find(seq + 1), *a2 = a.find(seq + 2);
  const auto *b0 = b.find(seq), *b1 = b.find(seq + 1), *b2 = b.find(seq + 2);
  const bool crossed = a1 != nullptr && b1 != nullptr && !same(*a0, *b0) && same(*a0, *b1) && same(*a1, *b0);
  return crossed && (a2 == nullptr || b2 == nullptr || same(*a2, *b2) || !same(*a2, *a0) || !same(*b2, *b0));
}

bool always_a_pair(const GroupReport& group, uint64_t seq, const FlightRecord& first, const FlightRecord& second) {
  constexpr size_t kLeast = 4;  // before: what is drawn by lot looks so once in two hundred times
  const auto& calls = group.tail;
  size_t before = 0, at = 0;
  while (at + 1 < calls.size()) {
    const bool begins = same_line(calls[at], first), turned = same_line(calls[at], second);
    if (!begins && !turned) {
      ++at;
    } else if (begins && same_line(calls[at + 1], second)) {
      before += calls[at].seq < seq ? 1 : 0;
      at += 2;
    } else if (turned && calls[at].seq >= seq && same_line(calls[at + 1], first)) {
      at += 2;
    } else if (turned && before == 0 && at == 0) {
      ++at;  // the first that is recorded may be the second of its pair
    } else {
      return false;
    }
  }
  return before >= kLeast;
}

uint64_t lines_part(const GroupReport& odd, const GroupReport& usual, uint64_t seq) {
  uint64_t first = seq;
  while (first > 1) {
    const FlightRecord *mine = odd.find(first - 1), *theirs = usual.find(first - 1);
    if (mine == nullptr || theirs == nullptr || same_line(*mine, *theirs)) break;
    --first;
  }
  if (first == seq || odd.find(seq)->signature.between_two()) return seq;
  const Gap gap = gap_between(odd, usual, first, same_line);
  return gap.skipped + gap.extra > 0 || swapped(odd, usual, first, same_line) ? first : seq;
}

}  // namespace lockstep
