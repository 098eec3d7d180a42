#include "lockstep/data/row_index.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

size_t after_mark(std::string_view bytes) { return bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; }

/// Narrows to the row's own characters; an empty rest is no row.
void add_row(std::string_view bytes, size_t begin, size_t end, uint64_t line, std::vector<RowSpan>& rows) {
  for (; begin < end && is_space(bytes[begin]); ++begin) line += bytes[begin] == '\n' ? 1 : 0;
  while (end > begin && is_space(bytes[end - 1])) --end;
  if (begin == end) return;
  if (end - begin > std::numeric_limits<uint32_t>::max() || line > std::numeric_limits<uint32_t>::max()) {
    throw data_error(fmt::format("line {}: expected a row of at most 4 GiB, and as many lines", line),
                     "is this a text of rows? One that stands in a single line is none");
  }
  rows.push_back({.offset = begin, .length = static_cast<uint32_t>(end - begin), .line = static_cast<uint32_t>(line)});
}

/// The end of a string that begins at `at`, one past its closing quote (or the end of the text).
size_t skip_string(std::string_view bytes, size_t at) {
  for (++at; at < bytes.size(); ++at) {
    if (bytes[at] == '\\') {
      ++at;
    } else if (bytes[at] == '"') {
      return at + 1;
    }
  }
  return bytes.size();
}

}  // namespace

std::vector<RowSpan> index_lines(std::string_view bytes) {
  std::vector<RowSpan> rows;
  uint64_t line = 1;
  for (size_t begin = after_mark(bytes); begin < bytes.size(); ++line) {
    const auto* found = static_cast<const char*>(std::memchr(bytes.data() + begin, '\n', bytes.size() - begin));
    const size_t end = found == nullptr ? bytes.size() : static_cast<size_t>(found - bytes.data());
    add_row(bytes, begin, end, line, rows);
    begin = end + 1;
  }
  return rows;
}

bool is_json_array(std::string_view bytes) {
  size_t at = after_mark(bytes);
  while (at < bytes.size() && is_space(bytes[at])) ++at;
  return at < bytes.size() && bytes[at] == '[';
}

std::vector<RowSpan> index_array(std::string_view bytes, std::string& problem) {
  std::vector<RowSpan> rows;
  uint64_t line = 1, element_line = 1;
  int64_t depth = 0;
  size_t element = 0;
  for (size_t at = after_mark(bytes); at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (c == '\n') ++line;
    if (c == '"') {
      at = skip_string(bytes, at) - 1;  // strings hold no line ends
    } else if (c == '[' || c == '{') {
      if (++depth == 1) {
        element = at + 1;
        element_line = line;
      }
    } else if ((c == ',' && depth == 1) || c == ']' || c == '}') {
      if (c != ',') --depth;
      if (depth > 1 || (depth == 1 && c != ',')) continue;
      add_row(bytes, element, at, element_line, rows);
      element = at + 1;
      element_line = line;
      if (depth > 0) continue;
      size_t rest = at + 1;
      while (rest < bytes.size() && is_space(bytes[rest])) ++rest;
      if (rest < bytes.size())
        problem = fmt::format("line {}: expected the end of the file after the array's ']'", line);
      return rows;
    }
  }
  problem = fmt::format("line {}: the array is not closed; is the file complete?", line);
  if (depth > 0) add_row(bytes, element, bytes.size(), element_line, rows);
  return rows;
}

}  // namespace lockstep
