// Answers to a file of prompts: every row once, in input order, under ms-swift's names; a run that was cut short goes
// on where it stopped.
//
// Example:
//   const Answered done = answer_file(job, {.run = {.model = "m"}, .input = {"rows.jsonl"}, .output = "o.jsonl"}, events);
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/infer/decode_slots.h"
#include "lockstep/session/batch_search.h"
#include "lockstep/session/row_options.h"
#include "lockstep/tasks/spoken_answers.h"

namespace lockstep {

struct AnswerFileOptions {
  RunOptions run;
  RowOptions rows;
  std::vector<std::string> input;  // JSONL or JSON files
  std::filesystem::path output;    // JSONL
  bool output_is_usual = false;    // it has a name of its own each time: an unfinished one of the same rows goes on
  int64_t max_new_tokens = 256;
  SamplingOptions sampling;
  BatchSize batch;                    // rows that one rank answers side by side
  std::optional<SpeakChoice> speech;  // answers are said as well: codes beside each text
  bool overwrite = false;             // begin anew where an earlier run of other options was cut short
};

struct Answered {
  std::filesystem::path output;
  int64_t answered = 0, failed = 0, tokens = 0;
  int64_t cut = 0;  // of those answered: not at their end, by max_new_tokens or the model's positions
  std::string first_failure;
  double seconds = 0;
  bool from_nothing = true;  // no earlier run had answered some
};

/// Figures are those of the reporting rank. `events` has sinks there only. Throws UserError, the same on all ranks.
/// Collective.
Answered answer_file(Job& job, const AnswerFileOptions& options, const EventBus& events);

}  // namespace lockstep
