// The first call that not all ranks made alike, and what must have happened.
#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/guard/call_difference.h"
#include "lockstep/guard/call_paths.h"
#include "lockstep/guard/camps.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/structure.h"

namespace lockstep {
namespace {

constexpr size_t kMaxListed = 4;
constexpr int64_t kNextComesNs = 300'000'000;     // for a side's next call to tip the scales
constexpr int64_t kOthersComeNs = 1'000'000'000;  // and for others, who may be slow to start

/// The strongest sides are equal, it has just happened, and others may still come.
bool undecided(const Census& census, const std::string& group, const std::vector<Camp>& camps, uint64_t seq) {
  if (camps[0].ranks.size() != camps[1].ranks.size()) return false;
  const auto made = [&](const Camp& camp) { return camp.track.ranks->sample.read_ns - camp.call->entered_ns; };
  if (std::min(made(camps[0]), made(camps[1])) >= kOthersComeNs) return false;
  return std::any_of(census.classes.begin(), census.classes.end(), [&](const RankClass& one) {
    if (!one.sample.joined || one.sample.over() || one.sample.life == Life::kFinishing) return false;
    if (camps[0].track.group->of(one.ranks).empty()) return false;
    const auto& groups = one.sample.groups;
    const auto own = std::ranges::find(groups, group, &GroupReport::name);
    return own == groups.end() || own->entered < seq;  // before its first call there it has not even the group
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
           sample.read_ns - camp.call->entered_ns < kNextComesNs;
  };
  return comes(camps.front(), camps.back()) || comes(camps.back(), camps.front());
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

/// Of another operation at another line than all before.
bool is_new(const GroupReport& group, const FlightRecord& call) {
  return std::ranges::none_of(group.tail, [&](const FlightRecord& one) {
    return one.seq < call.seq && (one.signature.op == call.signature.op || one.site.view() == call.site.view());
  });
}

/// One of the two is stuck in a group that the other makes next, and tells no more.
bool makes_groups_otherwise(const Camp& odd, const Camp& usual, uint64_t seq, Alike alike) {
  if (odd.call->signature.op != Op::kNewGroup || alike(*odd.call, *usual.call)) return false;
  const FlightRecord *next = odd.track.group->find(seq + 1), *theirs = usual.track.group->find(seq + 1);
  return (next != nullptr && alike(*next, *usual.call)) || (theirs != nullptr && alike(*theirs, *odd.call));
}

void explain(const Camp& odd, const Camp& usual, uint64_t seq, Alike alike, Diagnosis& out) {
  const GroupReport &mine = *odd.track.group, &theirs = *usual.track.group;
  const std::string who = out.culprits.phrase(), others = usual.ranks.phrase();
  constexpr const char* kFix =
      "every rank must make the same calls in the same order: look for a branch on the rank or on the data around {}";
  const bool groups = makes_groups_otherwise(odd, usual, seq, alike);
  if (groups || swapped(mine, theirs, seq, alike)) {
    out.headline = fmt::format("{} made two {} in the other order", who, groups ? "groups" : "calls");
    out.why = fmt::format("{} first called {}, {} first called {}", who, calls_from(mine, seq, 1), others,
                          calls_from(theirs, seq, 1));
    out.fix = fmt::format("make them in one order on all ranks, for instance sorted by name: look at {} and {}",
                          odd.call->site.view(), usual.call->site.view());
    return;
  }
  const Gap gap = alike(*odd.call, *usual.call) ? Gap{} : gap_between(mine, theirs, seq, alike);
  if (gap.skipped > 0 && gap.extra > 0) {
    out.headline = fmt::format("{} left out {} that {} made, or made {} once more", who, calls_word(gap.skipped),
                               others, calls_word(gap.extra));
    out.why = fmt::format("{} came to {} again where {} went on to {}", who, calls_from(mine, seq, 1), others,
                          calls_from(theirs, seq, 1));
    out.fix = fmt::format(
        "every rank must make the same calls in the same order: look for a branch on the rank or on the data (a batch "
        "that is passed over, a loop of another length) around {} and {}",
        odd.call->site.view(), usual.call->site.view());
  } else if (gap.skipped > 0) {
    // What neither side has come to cannot tell a call that was left out from one that is made later.
    const FlightRecord* next = mine.find(seq + 1);
    const bool later =
        gap.skipped == 1 && theirs.find(seq + 1) == nullptr && (next == nullptr || alike(*next, *usual.call));
    out.headline = fmt::format("{} skipped {} that {} made{}", who, calls_word(gap.skipped), others,
                               later ? ", or makes it in another order" : "");
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
    explain_difference(*odd.call, *usual.call, others, out);
    if (is_new(mine, *odd.call) && is_new(theirs, *odd.call) && !is_new(mine, *usual.call)) {
      out.headline += "; it skipped that one, or made this one besides";
    }
  }
}

/// No line of a person's stands behind the call: a library makes it on a thread of its own.
bool comes_from_a_thread(const FlightRecord& call) {
  const std::string_view site = call.site.view();
  return site.starts_with("futures/thread.py:") || site.find("/threading.py:") != std::string_view::npos;
}

/// A person's own, beside the main one: of two calls one alone, since a program may train in any thread.
const FlightRecord* of_own_thread(const FlightRecord& one, const FlightRecord& other) {
  const bool is = one.site.view().ends_with(kInThread), other_is = other.site.view().ends_with(kInThread);
  return is == other_is ? nullptr : is ? &one : &other;
}

/// What two threads of a rank call in one group comes in any order: no branch of the program is to be looked for.
void explain_threads(const Camp& odd, const Camp& usual, Diagnosis& out) {
  const FlightRecord* const own = of_own_thread(*odd.call, *usual.call);
  const FlightRecord* threads = own != nullptr                     ? own
                                : comes_from_a_thread(*odd.call)   ? odd.call
                                : comes_from_a_thread(*usual.call) ? usual.call
                                                                   : nullptr;
  if (threads == nullptr) return;
  out.why =
      fmt::format("{}; {} is made by a thread {} beside the program's {} calls, in the same group", out.why,
                  threads->call(), own != nullptr ? "of its own" : "of a library", own != nullptr ? "other" : "own");
  if (own != nullptr) {
    out.fix = fmt::format("give the thread that calls at {} a group of its own (dist.new_group, made on all ranks)",
                          own->site.view().substr(0, own->site.view().size() - kInThread.size()));
    return;
  }
  out.fix =
      "give what works in the background a group of its own: async_save(..., process_group=dist.new_group(backend="
      "\"gloo\")), or wait for it before the next call";
}

/// Tensors in one place differ in their dtype or in their dimensions: "float32 tensor, 2-d".
std::string_view what_differs(const NodeDifference& found) {
  const size_t mine = found.mine.find(" tensor, "), theirs = found.theirs.find(" tensor, ");
  if (mine == std::string::npos || theirs == std::string::npos) return "structure";
  return found.mine.substr(0, mine) == found.theirs.substr(0, theirs) ? "shape" : "dtype";
}

/// A call of one belongs to another part of the program than that of the other: no call of an evaluation comes in a pass of
/// training, and none of a save elsewhere.
bool are_apart(Phase one, Phase other) {
  const auto trains = [](Phase phase) {
    return phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kStep;
  };
  const auto apart = [&](Phase a, Phase b) {
    return a == Phase::kSave ? b != Phase::kSave : a == Phase::kEvaluate && trains(b);
  };
  return apart(one, other) || apart(other, one);
}

/// The title of values that nobody has named: those of two lines are two values.
constexpr std::string_view kUnnamed = "values";

/// The line of the person's own: "train.py:31 via utils/operations.py:355" -> "train.py:31".
std::string_view own_line(const FlightRecord& call) {
  return call.site.view().substr(0, call.site.view().find(" via "));
}

/// Ranks of which one evaluates or saves while the others train make calls that were never meant for each other.
bool are_elsewhere(const Camp& odd, const Camp& usual, const std::optional<Structure>& of_odd,
                   const std::optional<Structure>& of_usual) {
  const Phase mine = odd.track.ranks->sample.phase, theirs = usual.track.ranks->sample.phase;
  if (mine == theirs) return false;
  if (!of_odd || !of_usual) {  // where they stand now, and not where a call was made that is long over
    return are_apart(mine, theirs) && !odd.call->over() && !usual.call->over();
  }
  // By now those others may have gone on, so that of two calls under one title it is what they show that tells: what is
  // evaluated stands in each call of an evaluation but the first, which comes from a line of its own, and in no other.
  const auto evaluates_alone = [](Phase phase, const Structure& own, const Structure& other) {
    return phase == Phase::kEvaluate && own.shows_a_batch() && !other.shows_a_batch();
  };
  if (evaluates_alone(mine, *of_odd, *of_usual) || evaluates_alone(theirs, *of_usual, *of_odd)) return true;
  if (own_line(*odd.call) != own_line(*usual.call)) return mine == Phase::kEvaluate || theirs == Phase::kEvaluate;
  return of_odd->title != of_usual->title && are_apart(mine, theirs);
}

void explain_places(const Camp& odd, const Camp& usual, Diagnosis& out) {
  const auto be = [](const RankSet& ranks) { return ranks.size() == 1 ? "is" : "are"; };
  const std::string others = usual.ranks.phrase();
  out.headline = fmt::format("{} {} elsewhere: {}, where {} {} {}", out.culprits.phrase(), be(out.culprits),
                             phase_text(odd.track.ranks->sample.phase), others, be(usual.ranks),
                             phase_text(usual.track.ranks->sample.phase));
  out.why = fmt::format("their calls belong to different parts of the program: {} beside {}", odd.call->call(),
                        usual.call->call());
  out.fix = fmt::format(
      "let all ranks train, evaluate, save and stop at the same steps: look for a branch on the rank, or data sets of "
      "other lengths, around {}{}",
      odd.call->site.view(),
      odd.call->site.view() == usual.call->site.view() ? "" : fmt::format(" and {}", usual.call->site.view()));
}

std::optional<Structure> shown_by(const Camp& camp, std::string_view label) {
  for (const auto& text : camp.track.ranks->sample.structures) {
    auto structure = structure_from(text);
    if (structure && !structure->label.empty() && structure->label == label) return structure;
  }
  return std::nullopt;
}

/// What the ranks hold that are about to gather.
std::optional<Structure> shown_by(const Camp& camp) { return shown_by(camp, camp.call->label.view()); }

/// One side has run other modules than in the pass before: its calls are those of others, or none, and do not tell which.
void explain_modules(const Camp& odd, const Camp& usual, Diagnosis& out) {
  const auto mine = shown_by(odd, kModulesRemark), theirs = shown_by(usual, kModulesRemark);
  const std::string note = mine ? mine->note : "", other = theirs ? theirs->note : "";
  if (note == other || (note.empty() && !out.between_two)) return;
  if (note.empty()) out.culprits = usual.ranks;
  out.why = fmt::format("so it came to other calls than the others: {}", out.headline);
  out.headline = fmt::format("{} {}", (note.empty() ? usual : odd).ranks.phrase(), note.empty() ? other : note);
  out.fix =
      "run the same modules on all ranks in every pass: where a batch has nothing for one (text without an image), "
      "give "
      "it a dummy input and add its output times 0 to the loss";
}

/// Both are about to gather, and what they hold is not alike: that is why the calls are not.
bool explain_structures(const Camp& odd, const Camp& usual, const std::optional<Structure>& mine,
                        const std::optional<Structure>& theirs, Diagnosis& out) {
  if (!mine || !theirs) return false;
  if (own_line(*odd.call) != own_line(*usual.call) && mine->title == kUnnamed && theirs->title == kUnnamed)
    return false;
  const auto found = first_difference(*mine, *theirs);
  if (!found) return false;
  const std::string who = out.culprits.phrase(), others = usual.ranks.phrase();
  out.label = found->path;
  out.headline = fmt::format("{} {} another {}: {} is {} there, where {} {} {}", who,
                             out.culprits.size() == 1 ? "holds" : "hold", what_differs(*found), found->path,
                             found->mine, others, usual.ranks.size() == 1 ? "has" : "have", found->theirs);
  if (mine->label.starts_with("parameters")) {
    out.why =
        "the ranks must have the same parameters and buffers: the first rank's are given to all, one behind the other";
    out.fix = fmt::format(
        "make one model on all ranks, with the same options, and freeze the same of it (requires_grad), before {}",
        odd.call->site.view());
    if (!found->fix.empty()) out.fix = found->fix;
    return true;
  }
  const std::string& note = mine->note.empty() ? theirs->note : mine->note;
  out.why = fmt::format(
      "nested values are gathered one by one: ranks that hold others make other calls, and wait for each other{}{}",
      note.empty() ? "" : "; ", note);
  out.fix = found->fix.empty() ? fmt::format("let {} be of one structure on all ranks (pad, or leave it out) before {}",
                                             found->path, odd.call->site.view())
                               : found->fix;
  return true;
}

Diagnosis diagnose(const std::string& group, const std::vector<Camp>& camps, uint64_t seq, Alike alike) {
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
  const auto mine = shown_by(odd), theirs = shown_by(usual);
  if (are_elsewhere(odd, usual, mine, theirs)) {
    explain_places(odd, usual, out);
  } else if (!explain_structures(odd, usual, mine, theirs, out)) {
    explain(odd, usual, seq, alike, out);
    explain_threads(odd, usual, out);
    explain_modules(odd, usual, out);
  }
  if (out.between_two) {
    out.why += "; the sides are equally strong, so either may be the one that is wrong";
  }
  for (size_t i = 1; i < camps.size() && i <= kMaxListed; ++i) {
    out.places.push_back(fmt::format("{}: {}", camps[i].ranks.phrase(), camps[i].track.ranks->sample.place()));
  }
  return out;
}

}  // namespace

/// Groups that are made in another order, or on their members alone, are the fault of what somebody is stuck in; else they work.
static bool is_harmless(const std::vector<Track>& tracks, const Camp& camp) {
  constexpr int64_t kStuckNs = 500'000'000;
  if (camp.call->signature.op != Op::kNewGroup) return false;
  return std::ranges::none_of(tracks, [](const Track& track) {
    const FlightRecord& last = track.group->tail.back();
    return !last.over() && track.ranks->sample.read_ns - last.entered_ns >= kStuckNs;
  });
}

Judgement judge_mismatch(const Census& census) {
  for (const auto& group : groups_of(census)) {
    const auto tracks = tracks_of(census, group);
    const uint64_t seq = first_divergence(tracks);
    if (seq == 0) continue;
    const auto camps = camps_at(tracks, seq, same_call);
    if (camps.size() < 2 || undecided(census, group, camps, seq) || next_is_coming(census, camps, seq)) continue;
    if (is_harmless(tracks, camps.front())) continue;
    const uint64_t first = lines_part(*camps.back().track.group, *camps.front().track.group, seq);
    return {.verdict = Verdict::kEnd,
            .diagnosis = first == seq ? diagnose(group, camps, seq, same_call)
                                      : diagnose(group, camps_at(tracks, first, same_line), first, same_line)};
  }
  return {};
}

Judgement judge_lines(const Census& census) {
  for (const auto& group : groups_of(census)) {
    const auto tracks = tracks_of(census, group);
    const uint64_t seq = first_other_line(tracks);
    if (seq == 0) continue;
    const auto camps = camps_at(tracks, seq, same_line);
    if (camps.size() < 2 || undecided(census, group, camps, seq)) continue;
    const GroupReport &odd = *camps.back().track.group, &usual = *camps.front().track.group;
    const FlightRecord &one = *camps.back().call, &other = *camps.front().call;
    const auto *next = odd.find(seq + 1), *theirs = usual.find(seq + 1);
    const bool crossed = next != nullptr && theirs != nullptr && same_line(*next, other) && same_line(*theirs, one);
    const bool settled = (odd.find(seq + 2) != nullptr && usual.find(seq + 2) != nullptr) ||
                         camps.back().track.ranks->sample.read_ns - one.entered_ns > 2 * kOthersComeNs;
    if (!crossed || !settled) continue;
    const auto belong = [&](const FlightRecord& first, const FlightRecord& second) {
      return always_a_pair(odd, seq, first, second) && always_a_pair(usual, seq, first, second);
    };
    if (!belong(one, other) && !belong(other, one)) continue;
    Judgement found{.verdict = Verdict::kNotice, .diagnosis = diagnose(group, camps, seq, same_line)};
    found.diagnosis.fault = Fault::kLines;
    return found;
  }
  return {};
}

}  // namespace lockstep
