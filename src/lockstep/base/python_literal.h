// Values as Python writes them (repr): what ast.literal_eval reads of lists, dicts, texts, numbers, True, False and None, as JSON.
// Command lines and columns of data sets hold such texts where JSON was meant.
#pragma once

#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep {

/// False, with the fault and nothing in `out`, when `text` is no such value or passes the limits. A tuple becomes a list; a
/// dict's keys are texts, numbers or True, False, None, which become texts.
bool try_parse_python(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits = {});

/// JSON, or else Python. The fault is of the one that came further.
bool try_parse_literal(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits = {});

}  // namespace lockstep
