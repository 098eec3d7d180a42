// What a flag's values say, in any spelling that a stack's parser takes: bare, True, 2e8, None, a Python literal, …
//
// Example:
//   read_flag_values(FlagKind::kWhole, {.name = "save_steps", .spelled = "--save_steps", .values = {"2e3"}})   // {"2000"}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/dialect/flag_table.h"
#include "lockstep/dialect/given_words.h"

namespace lockstep {

/// As Lockstep's own flags spell them: true and false, digits, JSON. nullopt: it says that it is not given (None, [],
/// -1 of a limit). Throws UserError(kUsage), which names the flag, its value, and what is expected.
std::optional<std::vector<std::string>> read_flag_values(FlagKind kind, const GivenFlag& flag);

/// JSON, or a literal of Python: {0: "20GB", 'cpu': None}. Discarded (`is_discarded()`): it is neither.
Json literal_from(const std::string& text);

/// In small letters.
std::string lowered(std::string text);
/// Parts between separators, without blanks around them; empty ones too.
std::vector<std::string> trimmed_parts(const std::string& text, char separator);

bool is_true(const std::string& word);
bool is_false(const std::string& word);

}  // namespace lockstep
