// Functions that an assistant may call, and its calls, in the spellings of OpenAI, Anthropic, ms-swift and LLaMA-Factory; all
// become what chat templates of transformers read.
#pragma once

#include <string>

#include "lockstep/base/json.h"

namespace lockstep {

/// A value, or the one that a text holds as JSON or as Python writes it. Throws UserError(kData) for a text that is neither;
/// `expected` is what the field should hold.
Json literal_value(const Json& value, const std::string& where, const std::string& field, const std::string& expected);

/// A row's "tools", a list, an object or either as text, as a list of {"type": "function", "function": {...}}. Empty: none.
/// Throws UserError(kData) naming row, field, expected and found.
Json read_tools(const Json& value, const std::string& where);

/// OpenAI's "tool_calls" as [{"type": "function", "function": {"name", "arguments"}}], arguments an object. Throws UserError.
Json read_tool_calls(const Json& value, const std::string& where, const std::string& field);

/// What a turn of role tool_call or function_call holds, as read_tool_calls gives it: {"name", "arguments"}, a list of them, or
/// either as text. Throws UserError.
Json read_call_turn(const Json& content, const std::string& where, const std::string& field);

/// Anthropic's part {"type": "tool_use", "id", "name", "input"} as one such call. Throws UserError.
Json read_tool_use(const Json& part, const std::string& where, const std::string& field);

/// As Python's json.dumps(value, ensure_ascii=False), which the stacks put into texts.
std::string python_dumps(const Json& value);

}  // namespace lockstep
