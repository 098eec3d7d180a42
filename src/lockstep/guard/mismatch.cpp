// The first call that not all ranks made alike, and what must have happened.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/guard/diagnosis.h"

namespace lockstep {
namespace {

constexpr size_t kMaxListed = 4;
constexpr int64_t kOthersComeNs = 300'000'000;  // for others, or for a side's next call, to tip the scales

struct Track {
  const RankClass* ranks;
  const GroupReport* group;
};

/// Ranks that made the same call at the place in question, with one of them to read on from.
struct Camp {
  RankSet ranks;
  Track track;
  const FlightRecord* call;
};

bool same_call(const FlightRecord& a, const FlightRecord& b) {
  return a.signature == b.signature && a.label.view() == b.label.view();
}

std::vector<Track> tracks_of(const Census& census, const std::string& group) {
  std::vector<Track> tracks;
  for (const auto& one : census.classes) {
    for (const auto& report : one.sample.groups) {
      if (report.name == group && !report.tail.empty()) tracks.push_back({&one, &report});
    }
  }
  return tracks;
}

/// The first number at which two tracks have another history; 0 when none is recorded.
uint64_t first_divergence(const std::vector<Track>& tracks) {
  std::map<uint64_t, uint64_t> history;  // of the first track that has the number
  uint64_t found = 0;
  for (const auto& track : tracks) {
    for (const auto& record : track.group->tail) {
      const auto [at, is_new] = history.emplace(record.seq, record.history);
      if (is_new || at->second == record.history) continue;
      if (found == 0 || record.seq < found) found = record.seq;
      break;
    }
  }
  return found;
}

/// What used to follow: the call after the latest range that is most like the one before `seq`. Training repeats
/// itself, so this tells who left the path where there is no majority.
const FlightRecord* habit(const GroupReport& group, uint64_t seq) {
  constexpr size_t kContext = 16;
  const FlightRecord* best = nullptr;
  size_t most = 0;
  for (uint64_t past = seq - 1; group.find(past) != nullptr; --past) {
    size_t alike = 0;
    for (; alike < kContext; ++alike) {
      const FlightRecord *one = group.find(past - 1 - alike), *other = group.find(seq - 1 - alike);
      if (one == nullptr || other == nullptr || !same_call(*one, *other)) break;
    }
    if (alike <= most) continue;
    most = alike;
    best = group.find(past);
  }
  return best;
}

std::vector<Camp> camps_at(const std::vector<Track>& tracks, uint64_t seq) {
  std::vector<Camp> camps;
  for (const auto& track : tracks) {
    const FlightRecord* call = track.group->find(seq);
    if (call == nullptr) continue;
    const auto same = std::find_if(camps.begin(), camps.end(), [&](const Camp& camp) {
      return same_call(*camp.call, *call) && camp.call->history == call->history;
    });
    if (same != camps.end()) {
      same->ranks.add(track.ranks->ranks);
      if (track.group->tail.size() > same->track.group->tail.size()) same->track = track;
    } else {
      camps.push_back({track.ranks->ranks, track, call});
    }
  }
  const auto as_ever = [seq](const Camp& camp) {
    const FlightRecord* usual = habit(*camp.track.group, seq);
    return usual != nullptr && same_call(*usual, *camp.call) ? 1 : 0;
  };
  std::stable_sort(camps.begin(), camps.end(), [&](const Camp& a, const Camp& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : as_ever(a) > as_ever(b);
  });
  return camps;
}

/// The strongest sides are equal, it has just happened, and others may still come.
bool undecided(const Census& census, const std::string& group, const std::vector<Camp>& camps, uint64_t seq) {
  if (camps[0].ranks.size() != camps[1].ranks.size()) return false;
  const auto made = [&](const Camp& camp) { return camp.track.ranks->sample.read_ns - camp.call->entered_ns; };
  if (std::max(made(camps[0]), made(camps[1])) >= kOthersComeNs) return false;
  return std::any_of(census.classes.begin(), census.classes.end(), [&](const RankClass& one) {
    if (!one.sample.joined || one.sample.over() || one.sample.life == Life::kFinishing) return false;
    return std::any_of(one.sample.groups.begin(), one.sample.groups.end(),
                       [&](const GroupReport& report) { return report.name == group && report.entered < seq; });
  });
}

/// One side is through with the call and has just not come to its next one, the other has: that will show whether a call was
/// left out, made besides, or made in another order. Not where a rank has said its last words: then the job ends now.
bool next_is_coming(const Census& census, const std::vector<Camp>& camps, uint64_t seq) {
  const auto speaks = [](const RankClass& one) { return one.sample.last_words.has_value(); };
  if (std::any_of(census.classes.begin(), census.classes.end(), speaks)) return false;
  const auto comes = [seq](const Camp& camp, const Camp& other) {
    const RankReport& sample = camp.track.ranks->sample;
    return camp.call->state == CallState::kDone && camp.track.group->find(seq + 1) == nullptr &&
           other.track.group->find(seq + 1) != nullptr && !sample.over() &&
           sample.read_ns - camp.call->entered_ns < kOthersComeNs;
  };
  return comes(camps.front(), camps.back()) || comes(camps.back(), camps.front());
}

constexpr size_t kLongestGap = 64;

/// How many calls of `ahead` from `seq + shift` on are those of `behind` from `seq` on; 0 unless all of them are.
size_t stretch_alike(const GroupReport& ahead, const GroupReport& behind, uint64_t seq, size_t shift) {
  for (size_t alike = 0;; ++alike) {
    const FlightRecord* one = ahead.find(seq + shift + alike);
    const FlightRecord* other = behind.find(seq + alike);
    if (one == nullptr || other == nullptr) return alike;
    if (!same_call(*one, *other)) return 0;
  }
}

/// How many calls `ahead` made at `seq` that `behind` left out: the least shift after which the two go on alike. 0 when
/// there is none.
size_t gap_seen(const GroupReport& ahead, const GroupReport& behind, uint64_t seq) {
  for (size_t shift = 1; shift <= kLongestGap; ++shift) {
    if (stretch_alike(ahead, behind, seq, shift) > 0) return shift;
  }
  return 0;
}

/// The same from habit, when both are stuck where they parted: how far after an earlier call like that of `ahead` came
/// one like that of `behind`. Training repeats itself.
size_t gap_expected(const GroupReport& ahead, const GroupReport& behind, uint64_t seq) {
  const FlightRecord *here = ahead.find(seq), *there = behind.find(seq);
  for (uint64_t earlier = seq - 1; const FlightRecord* past = ahead.find(earlier); --earlier) {
    if (!same_call(*past, *here)) continue;
    for (size_t shift = 1; shift <= kLongestGap && earlier + shift < seq; ++shift) {
      const FlightRecord* next = ahead.find(earlier + shift);
      if (next != nullptr && same_call(*next, *there)) return shift;
    }
  }
  return 0;
}

/// Calls that the odd one left out, or made besides; at most one of the two is not 0.
struct Gap {
  size_t skipped = 0, extra = 0;
};

/// The smaller one: a loop brings every call again after a while.
Gap smaller(size_t skipped, size_t extra) {
  if (skipped > 0 && (extra == 0 || skipped <= extra)) return {.skipped = skipped};
  return {.extra = extra};
}

/// None where the one call was made in place of the other.
Gap gap_between(const GroupReport& odd, const GroupReport& usual, uint64_t seq) {
  const FlightRecord &mine = *odd.find(seq), &theirs = *usual.find(seq);
  const bool one_spot =
      !mine.label.view().empty() && mine.label.view() == theirs.label.view() && mine.site.view() == theirs.site.view();
  const Gap seen = smaller(gap_seen(usual, odd, seq), gap_seen(odd, usual, seq));
  const size_t in_place = stretch_alike(odd, usual, seq + 1, 0);
  const size_t shifted = seen.skipped > 0 ? stretch_alike(usual, odd, seq, seen.skipped)
                                          : stretch_alike(odd, usual, seq, std::max<size_t>(seen.extra, 1));
  if (shifted > in_place || (shifted == in_place && shifted > 0 && !one_spot)) return seen;
  if (in_place > 0 || one_spot) return {};
  return smaller(gap_expected(usual, odd, seq), gap_expected(odd, usual, seq));
}

bool swapped(const GroupReport& a, const GroupReport& b, uint64_t seq) {
  const auto* a0 = a.find(seq);
  const auto* a1 = a.find(seq + 1);
  const auto* b0 = b.find(seq);
  const auto* b1 = b.find(seq + 1);
  return a1 != nullptr && b1 != nullptr && !same_call(*a0, *b0) && same_call(*a0, *b1) && same_call(*a1, *b0);
}

std::string calls_from(const GroupReport& group, uint64_t seq, size_t count) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(count, kMaxListed); ++i) {
    if (const auto* record = group.find(seq + i)) {
      texts.push_back(fmt::format("{} at {}", record->call(), record->site.view()));
    }
  }
  if (count > kMaxListed) texts.push_back(fmt::format("{} more", count - kMaxListed));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string calls_word(size_t count) { return count == 1 ? "a call" : fmt::format("{} calls", count); }

/// What differs in one call that both made at the same place.
void explain_difference(const FlightRecord& odd, const FlightRecord& usual, Diagnosis& out) {
  const CallSignature &a = odd.signature, &b = usual.signature;
  const std::string who = out.culprits.phrase();
  const std::string_view mine = odd.label.view(), theirs = usual.label.view();
  const std::string name = mine != theirs ? fmt::format("\"{}\" beside \"{}\"", mine, theirs)
                           : mine.empty() ? std::string("the call")
                                          : fmt::format("\"{}\"", mine);
  if (a.op != b.op) {
    out.headline = fmt::format("{} made another call: {} beside {}", who, op_name(a.op), op_name(b.op));
    out.why = "the ranks took different branches: they are not at the same place of the program";
    out.fix = fmt::format(
        "every rank must make the same calls in the same order: look for a branch on the rank or on "
        "the data before {} and {}",
        odd.site.view(), usual.site.view());
  } else if (a.dtype != b.dtype) {
    out.headline = fmt::format("{} sent another dtype: {} beside {}", who, a.dtype_text(), b.dtype_text());
    out.why =
        fmt::format("{} has dtype {} there; the transport moves bytes and would not notice", name, a.dtype_text());
    out.fix = fmt::format("give the tensor one dtype on all ranks before {}; for a whole model: the same --torch_dtype",
                          odd.site.view());
  } else if (a.reduce != b.reduce) {
    out.headline = fmt::format("{} reduces by {} where others take the {}", who, reduce_op_name(a.reduce),
                               reduce_op_name(b.reduce));
    out.why =
        fmt::format("{} is combined by another operation on a part of the ranks: the results would be wrong", name);
    out.fix = fmt::format("pass the same reduce operation on all ranks at {}", odd.site.view());
  } else if (a.root != b.root) {
    out.headline = fmt::format("{} names root {} where others name {}", who, a.root, b.root);
    out.why = fmt::format("each side of {} expects its values from another rank", name);
    out.fix = fmt::format("pass the same root on all ranks at {}: a constant, not the own rank", odd.site.view());
  } else if (a.num_dims != b.num_dims || a.dims != b.dims || a.splits != b.splits || a.has_splits != b.has_splits) {
    const bool equal_size = a.numel() == b.numel() && a.splits == b.splits;
    out.headline = fmt::format("{} sent another {}: {} beside {}", who, equal_size ? "shape of the same size" : "shape",
                               a.describe(), b.describe());
    out.why = fmt::format("{} has another shape there{}", name,
                          equal_size ? "; the transport moves bytes and would not notice" : "");
    out.fix = fmt::format(
        "make the shape equal on all ranks before {} (pad, or cut to the shortest); where sizes may "
        "differ, gather nested values, which carry their shapes",
        odd.site.view());
  } else if (same_call(odd, usual)) {
    out.headline = fmt::format("{} left the others' path before the calls that are recorded", who);
    out.why = "the calls shown are equal but the histories before them are not: values are mixed up since then";
    out.fix = fmt::format(
        "every rank must make the same calls in the same order: look for a branch on the rank or on "
        "the data that comes to {}",
        odd.site.view());
  } else {
    out.headline =
        fmt::format("{} sent another tensor: \"{}\" beside \"{}\"", who, odd.label.view(), usual.label.view());
    out.why = "the calls have one shape, so the transport pairs them without noticing: the values would be mixed up";
    out.fix = fmt::format("make the calls in one order on all ranks, for instance sorted by name: look at {} and {}",
                          odd.site.view(), usual.site.view());
  }
}

void explain(const Camp& odd, const Camp& usual, uint64_t seq, Diagnosis& out) {
  const GroupReport &mine = *odd.track.group, &theirs = *usual.track.group;
  const std::string who = out.culprits.phrase(), others = usual.ranks.phrase();
  constexpr const char* kFix =
      "every rank must make the same calls in the same order: look for a branch on the rank or on the data around {}";
  if (swapped(mine, theirs, seq)) {
    out.headline = fmt::format("{} made two calls in the other order", who);
    out.why = fmt::format("{} first called {}, {} first called {}", who, calls_from(mine, seq, 1), others,
                          calls_from(theirs, seq, 1));
    out.fix = fmt::format("make them in one order on all ranks, for instance sorted by name: look at {} and {}",
                          odd.call->site.view(), usual.call->site.view());
    return;
  }
  const Gap gap = same_call(*odd.call, *usual.call) ? Gap{} : gap_between(mine, theirs, seq);
  if (gap.skipped > 0) {
    out.headline = fmt::format("{} skipped {} that {} made", who, calls_word(gap.skipped), others);
    out.why = fmt::format("{} left out {} and went on with the next; values exchanged since then are mixed up", who,
                          calls_from(theirs, seq, gap.skipped));
    out.fix = fmt::format(kFix, usual.call->site.view());
    out.op = op_name(usual.call->signature.op);
    out.label = usual.call->label.view();
  } else if (gap.extra > 0) {
    out.headline = fmt::format("{} made {} that {} did not", who, calls_word(gap.extra), others);
    out.why = fmt::format("{} made {} besides", who, calls_from(mine, seq, gap.extra));
    out.fix = fmt::format(kFix, odd.call->site.view());
  } else {
    explain_difference(*odd.call, *usual.call, out);
  }
}

Diagnosis diagnose(const std::string& group, const std::vector<Camp>& camps, uint64_t seq) {
  const Camp &usual = camps.front(), &odd = camps.back();
  Diagnosis out{
      .fault = Fault::kMismatch, .group = group, .seq = seq, .exit_code = static_cast<int>(ExitCode::kCommunication)};
  out.between_two = camps[1].ranks.size() == usual.ranks.size();
  for (size_t i = 1; i < camps.size(); ++i) out.culprits.add(camps[i].ranks);
  out.op = op_name(odd.call->signature.op);
  out.label = odd.call->label.view();
  for (const auto& camp : camps) {
    out.sides.push_back({camp.ranks, camp.call->call(), std::string(camp.call->site.view())});
  }
  explain(odd, usual, seq, out);
  if (out.between_two) {
    out.why += "; the sides are equally strong, so either may be the one that is wrong";
  }
  for (size_t i = 1; i < camps.size() && i <= kMaxListed; ++i) {
    out.places.push_back(fmt::format("{}: {}", camps[i].ranks.phrase(), camps[i].track.ranks->sample.place()));
  }
  return out;
}

}  // namespace

Judgement judge_mismatch(const Census& census) {
  std::set<std::string> groups;
  for (const auto& one : census.classes) {
    for (const auto& group : one.sample.groups) groups.insert(group.name);
  }
  for (const auto& group : groups) {
    const auto tracks = tracks_of(census, group);
    const uint64_t seq = first_divergence(tracks);
    if (seq == 0) continue;
    const auto camps = camps_at(tracks, seq);
    if (camps.size() < 2 || undecided(census, group, camps, seq) || next_is_coming(census, camps, seq)) continue;
    return {.verdict = Verdict::kEnd, .diagnosis = diagnose(group, camps, seq)};
  }
  return {};
}

}  // namespace lockstep
