// Python's string operations on UTF-8, as far as templates use them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

/// Without white space (Python's isspace) at that end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
/// Without any of the characters of `set` at that end.
std::string_view strip_left(std::string_view text, std::string_view set);
std::string_view strip_right(std::string_view text, std::string_view set);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // first character upper, the others lower
std::string title(std::string_view text);       // str.title(): each run of letters capitalised

/// str.split: by white space when `separator` is empty; at most `limit` cuts when it is not negative.
std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit = -1);
std::vector<std::string> split_from_right(std::string_view text, std::string_view separator, int64_t limit = -1);
std::vector<std::string> split_lines(std::string_view text);
std::string replace(std::string_view text, std::string_view old, std::string_view fresh, int64_t limit = -1);

/// The characters, each as its bytes.
std::vector<std::string_view> characters(std::string_view text);

/// The value of a string literal's inside.
std::string unescape(std::string_view literal);

/// int(text, base) of Python: white space around and single underscores inside are allowed.
std::optional<int64_t> parse_int(std::string_view text, int base = 10);
std::optional<double> parse_float(std::string_view text);

}  // namespace lockstep::jinja
