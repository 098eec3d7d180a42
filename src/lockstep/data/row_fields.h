// Fields of a row as its readers look for them: one that is null is not there.
#pragma once

#include <array>
#include <span>

#include "lockstep/base/json.h"

namespace lockstep {

/// Columns of a question, of its answer, of turns; in this order the first that is there counts.
inline constexpr std::array kQueryNames = {"query", "prompt", "question", "problem", "instruction", "input"};
inline constexpr std::array kResponseNames = {"response", "answer",   "output", "targets",    "target", "answer_key",
                                              "answers",  "solution", "text",   "completion", "content"};
inline constexpr std::array kTurnNames = {"messages", "conversations", "conversation"};

/// nullptr: the row has none.
const Json* find_value(const Json& row, const char* name);

/// The first of these names that the row has; nullptr: none.
const char* first_name(const Json& row, std::span<const char* const> names);

}  // namespace lockstep
