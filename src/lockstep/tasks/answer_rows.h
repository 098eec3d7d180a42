// The model's own answers to the rows of a data set: generated over all ranks, scored, and given to metric programs.
// `lockstep eval` and the evaluations of `lockstep sft` are this function.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/program.h"
#include "lockstep/session/row_options.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/predictions.h"

namespace lockstep {

struct AnswerOptions {
  GenerateOptions generate;
  RowOptions rows;
  int64_t show = 8;  // answers that are kept to be shown
  std::vector<AnswerMetric> metrics = answer_metrics();
  std::vector<Program> programs;  // looked at on rank 0
  double metric_timeout_s = 600;
  std::filesystem::path output;            // a file for all rows; empty: none
  std::function<bool()> stop_wanted = {};  // asked before each row; empty: all are answered
};

/// Options of generation for this session's family: stop and pad tokens; greedy where nothing is said. `max_length`: of rows, as
/// the person asks for it; where that is beyond the model's positions they end no answer.
GenerateOptions generate_options(const Session& session, int64_t batch_size, int64_t max_new_tokens, int64_t max_length,
                                 const SamplingOptions& sampling = {});

/// Generates, scores, writes `output`, then runs the programs, unless no row could be answered. A program's failure is
/// thrown on all ranks; the rows are written by then. Where some rank wished to stop nothing is scored (`stopped`). The figures of the means and values stand on every rank, whatever
/// their number the same. Collective.
AnswerFigures answer_rows(Session& session, const Dataset& dataset, const AnswerOptions& options,
                          const EventBus& events);

/// The means, then what programs have measured, as name and value; those that are not numbers (JSON text) apart.
struct NamedValues {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> others;
};
NamedValues named_values(const AnswerFigures& figures);

/// e to the loss. Source: Jelinek et al. 1977; per target token, as the loss is.
double perplexity(double loss);

}  // namespace lockstep
