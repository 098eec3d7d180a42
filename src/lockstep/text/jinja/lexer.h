// Cuts a template into text and tokens, with the white-space rules that transformers compiles chat templates with
// (trim_blocks, lstrip_blocks, no trailing newline).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

struct Place {
  size_t line = 1, column = 1;
};

struct Token {
  enum class Kind {
    kText,        // to print as it is
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;  // a string is unescaped
  Place place;
};

/// Throws UserError(kCheckpoint) naming `where`, line and column.
std::vector<Token> tokenize_template(std::string_view source, const std::string& where);

/// As errors of the lexer and parser are worded.
[[noreturn]] void syntax_error(const std::string& where, Place place, const std::string& message);

}  // namespace lockstep::jinja
