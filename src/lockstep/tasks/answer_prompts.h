// Answers to the prompts of a data set's rows, over all ranks: what a file of answers, and a model that stays loaded, share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/answer_file.h"

namespace lockstep {

/// Called on the rank that answers, in the order in which rows end: {"response", "tokens"} (and "speech",
/// and "finish_reason" where it was cut), or {"error"}.
using KeepAnswer = std::function<void(int64_t row, const Json& record)>;

/// Answers the rows of `order`, `slots` of them side by side; what a row says depends on that number. Rows that cannot be used
/// have an error, unless options.rows.strict. Of `options` input, output and batch are not looked at. Collective.
void answer_prompts(Session& session, const AnswerFileOptions& options, int64_t slots, const Dataset& rows,
                    const std::vector<int64_t>& order, const KeepAnswer& keep);

/// How many rows a rank answers side by side where it is given `batch`.
int64_t answer_slots(int64_t batch, const Dataset& rows);

/// As many slots as fit when all of them hold the longest prompt and a whole answer. Collective.
int64_t find_answer_slots(Session& session, const AnswerFileOptions& options, const Dataset& rows,
                          const EventBus& events);

/// A record as a line of the answers' file, under ms-swift's names. It is a row again, which asks the same.
Json answer_row(const Sample& sample, const Json& record);
/// Of a row that has none.
Json failed_row(const std::string& where, const std::string& why);

}  // namespace lockstep
