#include "lockstep/data/csv_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/python_literal.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kMostColumns = 10'000;
constexpr size_t kLongestRecord = size_t{512} << 20;

/// The end of the record that begins at `at` (its line end, or the text's), and how many lines it has. A quote opens a field
/// where the field begins; inside, two of them are one.
struct RecordEnd {
  size_t at = 0;
  uint32_t lines = 0;
  bool open = false;       // a quote was not closed …
  uint32_t open_line = 0;  // … that stands so many lines further on
};

RecordEnd end_of_record(std::string_view bytes, size_t at, char delimiter) {
  RecordEnd end;
  bool field_begins = true;
  for (; at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (c == '\n' || c == '\r') break;
    if (c == '"' && field_begins) {
      const uint32_t opened = end.lines;
      for (++at; at < bytes.size(); ++at) {
        if (bytes[at] == '\n') ++end.lines;
        if (bytes[at] != '"') continue;
        if (at + 1 < bytes.size() && bytes[at + 1] == '"') {
          ++at;
        } else {
          break;
        }
      }
      if (at >= bytes.size()) {
        end.at = bytes.size();
        end.open = true;
        end.open_line = opened;
        return end;
      }
    }
    field_begins = c == delimiter;
  }
  end.at = at;
  return end;
}

bool is_media_column(const std::string& name) {
  constexpr std::array kNames = {"images", "image", "videos", "video", "audios", "audio"};
  return std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

bool csv_fields(std::string_view record, char delimiter, std::vector<std::string>& fields, std::string& problem) {
  fields.clear();
  for (size_t at = 0;;) {
    std::string field;
    if (at < record.size() && record[at] == '"') {
      for (++at; at < record.size(); ++at) {
        if (record[at] != '"') {
          field += record[at];
        } else if (at + 1 < record.size() && record[at + 1] == '"') {
          field += '"';
          ++at;
        } else {
          ++at;
          break;
        }
      }
      if (at < record.size() && record[at] != delimiter) {
        problem = fmt::format("expected '{}' or the record's end behind the closing quote of field {}, found \"{}\"",
                              delimiter, fields.size() + 1, cut_text(std::string(record.substr(at, 24))));
        return false;
      }
    } else {
      const size_t end = std::min(record.find(delimiter, at), record.size());
      field = record.substr(at, end - at);
      at = end;
    }
    fields.push_back(std::move(field));
    if (at >= record.size()) return true;
    ++at;  // the delimiter
  }
}

CsvFile index_csv(std::string_view bytes, char delimiter, const std::string& name) {
  CsvFile file{.delimiter = delimiter, .columns = {}, .records = {}};
  uint32_t line = 1;
  size_t at = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  bool named = false;
  while (at < bytes.size()) {
    const RecordEnd end = end_of_record(bytes, at, delimiter);
    if (end.open) {
      throw data_error(fmt::format("{}:{}: expected a closing quote for the field that opens one, found the file's end",
                                   name, line + end.open_line),
                       "a quote inside a field is written twice, and the field stands in quotes");
    }
    const std::string_view record = bytes.substr(at, end.at - at);
    if (record.size() > kLongestRecord)
      throw data_error(
          fmt::format("{}:{}: expected a record of 512 MiB at most, found {} bytes", name, line, record.size()));
    if (!record.empty() && !named) {
      named = true;
      std::string problem;
      if (!csv_fields(record, delimiter, file.columns, problem))
        throw data_error(fmt::format("{}:{}: {}", name, line, problem));
      for (size_t i = 0; i < file.columns.size(); ++i) {
        const auto& column = file.columns[i];
        const bool twice = std::find(file.columns.begin(), file.columns.begin() + static_cast<std::ptrdiff_t>(i),
                                     column) != file.columns.begin() + static_cast<std::ptrdiff_t>(i);
        if (!column.empty() && !twice && file.columns.size() <= kMostColumns) continue;
        throw data_error(fmt::format("{}:{}: expected a first line with the names of the columns, found {}", name, line,
                                     file.columns.size() > kMostColumns ? fmt::format("{} of them", file.columns.size())
                                     : column.empty()                   ? fmt::format("no name for column {}", i + 1)
                                                      : fmt::format("\"{}\" twice", cut_text(column))),
                         "the first line of a csv file is its header");
      }
    } else if (!record.empty()) {
      file.records.push_back({at, static_cast<uint32_t>(record.size()), line});
    }
    line += end.lines;
    at = end.at;
    if (at < bytes.size()) {
      at += bytes.substr(at).starts_with("\r\n") ? 2 : 1;
      ++line;
    }
  }
  return file;
}

Json csv_row(const CsvFile& file, std::string_view record, const std::string& where) {
  std::vector<std::string> fields;
  std::string problem;
  if (!csv_fields(record, file.delimiter, fields, problem)) {
    throw data_error(fmt::format("{}: {}", where, problem),
                     "a quote inside a field is written twice, and the field stands in quotes");
  }
  if (fields.size() != file.columns.size()) {
    throw data_error(fmt::format("{}: expected {} fields, as the first line names, found {}", where,
                                 file.columns.size(), fields.size()),
                     "a field that holds the delimiter stands in quotes");
  }
  Json row = Json::object();
  for (size_t i = 0; i < fields.size(); ++i) {
    Json value = std::move(fields[i]);
    if (is_media_column(file.columns[i]) && value.get_ref<const std::string&>().starts_with('[')) {
      Json list;
      JsonFault fault;
      if (try_parse_literal(value.get_ref<const std::string&>(), list, fault)) value = std::move(list);
    }
    row[file.columns[i]] = std::move(value);
  }
  return row;
}

}  // namespace lockstep
