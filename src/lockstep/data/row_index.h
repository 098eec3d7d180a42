// Where the rows of one data file lie: lines of JSONL, or elements of a JSON array, found by one scan without parsing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A row's bytes, and the line (from 1) on which they begin.
struct RowSpan {
  uint64_t offset = 0;
  uint32_t length = 0;
  uint32_t line = 0;
};

/// Not-empty lines, without byte order mark and line ends (LF or CRLF).
std::vector<RowSpan> index_lines(std::string_view bytes);

/// Elements of a top-level array, found by brackets, strings and commas; what lies between is judged when it is parsed.
/// An array that is not closed sets `problem`, and its last, cut element is among the rows.
std::vector<RowSpan> index_array(std::string_view bytes, std::string& problem);

/// True when the text begins with '[' (after white space and a byte order mark).
bool is_json_array(std::string_view bytes);

}  // namespace lockstep
