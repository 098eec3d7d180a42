// Exact match: the model's own answers to the rows of a data set, compared with the ones that the rows expect.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/cli/session.h"
#include "lockstep/data/dataset.h"
#include "lockstep/infer/generator.h"

namespace lockstep {

struct AnswerFigures {
  int64_t rows = 0, exact = 0, skipped = 0;            // rows with an expected answer
  std::vector<std::pair<std::string, double>> groups;  // exact match a group, by name
  std::vector<SamplePrediction> samples;               // the first `show` rows
  double exact_match() const { return rows == 0 ? -1.0 : static_cast<double>(exact) / static_cast<double>(rows); }
};

struct AnswerOptions {
  GenerateOptions generate;
  ProcessOptions process;
  bool strict = false;
  int64_t show = 8;
};

/// Options of generation for this session's family: stop and pad tokens, greedy.
GenerateOptions generate_options(const Session& session, int64_t batch_size, int64_t max_new_tokens);

/// Answers are compared without white space at their ends. The same figures on every rank. Collective.
AnswerFigures exact_answers(Session& session, const Dataset& dataset, const AnswerOptions& options);

}  // namespace lockstep
