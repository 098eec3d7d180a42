// Who, what, where, why, and what to do: found by a pure function from what the ranks' boards said.
//
// Example:
//   const Judgement judgement = judge(census, {.soft_seconds = 3});
//   if (judgement.verdict == Verdict::kEnd) std::cerr << judgement.diagnosis.text();
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/guard/census.h"

namespace lockstep {

enum class Fault {
  kMismatch,   // other calls, or other shapes
  kLines,      // equal calls, paired with those of other lines
  kNan,        // a rank alone gives what is no number
  kFacts,      // not the same program, model, data or world
  kError,      // a rank gave its reason
  kDeath,      // a process ended without one
  kEarlyEnd,   // a rank finished while others wait for it
  kStopped,    // SIGSTOP
  kLostNode,   // a whole node is silent
  kDeadlock,   // ranks wait for each other in different groups
  kTransport,  // all came to the call, but it does not end
  kStall,      // a rank is busy or blocked elsewhere
  kAbsent      // a rank never came
};
std::string_view fault_name(Fault fault);

/// Ranks that did the same in the call in question.
struct Side {
  RankSet ranks;
  std::string call, site;  // "all_reduce sum f32[4] \"loss\"", "trainer.cpp:93"
};

struct Diagnosis {
  Fault fault = Fault::kError;
  RankSet culprits;          // those to look at first
  bool between_two = false;  // no majority: either may be wrong
  std::string headline;      // one line: who did what
  std::string group;         // of the call; empty when there is none
  uint64_t seq = 0;
  std::string op, label;  // of the culprit's call, or of the one it is missed in
  std::vector<Side> sides;
  std::vector<std::string> places;  // one line per culprit standing
  std::string why, fix, stack;
  std::string error_hint;  // of an error that a rank gave itself
  int exit_code = 0;

  std::string text() const;  // the block that people read, without a newline at its end
};
Json to_json(const Diagnosis& diagnosis);

enum class Verdict { kFine, kNotice, kEnd };

struct Judgement {
  Verdict verdict = Verdict::kFine;
  Diagnosis diagnosis;
  double waited_seconds = 0;  // of a notice: how long somebody has waited
};

struct JudgeOptions {
  double soft_seconds = 3;
  std::array<double, kPhases> hard_seconds = default_patience();  // by the phase of the rank that is waited for
  bool whole = true;         // the census holds all ranks: an absence means something
  double start_seconds = 7;  // until ranks that are absent are named

  static std::array<double, kPhases> default_patience();
};

Judgement judge(const Census& census, const JudgeOptions& options = {});

/// The first call that not all ranks made alike, of any group; kFine when there is none among the calls recorded.
Judgement judge_mismatch(const Census& census);

/// Equal calls that two lines make side by side, and that some ranks made in the other order or one behind: the transport
/// has paired what does not belong together. Told, and no reason to end: it is known from the lines alone.
Judgement judge_lines(const Census& census);

/// The first call to which a part of the ranks gave NaN. It spreads to all; told, and no reason to end: a gradient scaler
/// skips such steps.
Judgement judge_nan(const Census& census);

/// A rank that was told to end by SIGTERM, and its neighbours were not. Told: its launcher ends the job by then.
Judgement judge_asked(const Census& census);

/// Whether a rank has ended, or ends, as somebody has asked it to: by the signal, or as interrupted.
bool somebody_obeyed(const Census& census);

}  // namespace lockstep
