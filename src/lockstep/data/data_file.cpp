#include "lockstep/data/data_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

/// The parser's words without its prefix ("[json.exception...] parse error at line 1, column 5: "), and where it stood.
std::string describe_fault(const JsonFault& fault, std::string_view text, const RowSpan& span, bool is_array) {
  const size_t byte = std::min(text.size(), fault.byte);
  const std::string_view before = text.substr(0, byte);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  // Columns are characters: continuation bytes of UTF-8 do not count.
  const auto column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start), before.end(),
                                        [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  std::string_view what = fault.why;
  if (const size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
  const std::string place =
      is_array ? fmt::format("line {} column {}", span.line + lines, column) : fmt::format("column {}", column);
  return fmt::format("{}: not valid JSON ({})", place, what);
}

/// What a file is that is no file on a disk.
std::string kind_of(const std::filesystem::file_status& status) {
  switch (status.type()) {
    case std::filesystem::file_type::directory:
      return "a folder";
    case std::filesystem::file_type::fifo:
      return "a pipe";
    case std::filesystem::file_type::character:
    case std::filesystem::file_type::block:
      return "a device";
    case std::filesystem::file_type::socket:
      return "a socket";
    default:
      return "something else";
  }
}

/// Data of another kind would be told as row 1 that is not valid JSON.
void refuse_other_formats(const std::string& name, std::string_view bytes) {
  struct Format {
    std::string_view begin, kind;
    const char* cure;
  };
  static constexpr std::array kFormats = {
      Format{"\x1f\x8b", "gzip data", "gunzip it first"},
      Format{"\x28\xb5\x2f\xfd", "zstd data", "unzstd it first"},
      Format{"\xfd"
             "7zXZ",
             "xz data", "unxz it first"},
      Format{"BZh", "bzip2 data", "bunzip2 it first"},
      Format{"PK\x03\x04", "a zip archive", "unzip it first"},
      Format{"\xff\xfe", "UTF-16 text", "save it as UTF-8"},
      Format{"\xfe\xff", "UTF-16 text", "save it as UTF-8"},
  };
  for (const Format& format : kFormats) {
    if (!bytes.starts_with(format.begin)) continue;
    throw data_error(fmt::format("--dataset {}: expected JSON lines, JSON, csv, text, Parquet or Arrow, found {}", name,
                                 format.kind),
                     format.cure);
  }
}

/// The name, where it is a file's.
const std::string& checked(const std::string& name) {
  std::error_code ignored;
  const auto status = std::filesystem::status(name, ignored);
  if (!std::filesystem::exists(status))
    throw data_error(fmt::format("--dataset {}: no such file", name), "data sets are local files or folders");
  if (std::filesystem::is_regular_file(status)) return name;
  throw data_error(fmt::format("--dataset {}: expected a file of rows, found {}", name, kind_of(status)),
                   "rows are read more than once and by every rank: write them to a file first");
}

bool ends_in(const std::string& name, std::string_view ending) {
  return name.size() > ending.size() && name.ends_with(ending);
}

/// Of lines the last ends with a row's bracket.
bool ends_as_array(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && text[last] == ']';
}

/// Of a text that may be large, a part at a time.
std::string hash_of_text(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

/// Of what says what a table holds (its ends), of its size, and of some pages between: reading it all would take as long as
/// an epoch.
std::string hash_of_table(std::string_view bytes) {
  constexpr size_t kBegin = 64 << 10, kEnd = 1 << 20, kPage = 4 << 10, kPages = 64;
  std::string all = fmt::format("{} ", bytes.size());
  all += bytes.substr(0, kBegin);
  for (size_t i = 1; i < kPages && bytes.size() > kBegin + kEnd; ++i)
    all += bytes.substr(bytes.size() / kPages * i, kPage);
  all += bytes.substr(bytes.size() - std::min(bytes.size(), kEnd));
  return hash_of_text(all);
}

}  // namespace

DataFile::DataFile(const std::string& name) : name_(name), map_(checked(name)) {
  refuse_other_formats(name, text());
  if (RowTable::is_table(text()) || ends_in(name, ".parquet") || ends_in(name, ".arrow")) {
    kind_ = Kind::kTable;
    table_ = std::make_unique<RowTable>(name, map_->bytes());
  } else if (ends_in(name, ".csv") || ends_in(name, ".tsv")) {
    kind_ = Kind::kCsv;
    csv_ = index_csv(text(), ends_in(name, ".tsv") ? '\t' : ',', name);
  } else if (ends_in(name, ".txt")) {
    kind_ = Kind::kText;
    rows_ = index_lines(text());
  } else if (is_json_array(text()) && (!ends_in(name, ".jsonl") || ends_as_array(text()))) {
    kind_ = Kind::kArray;
    rows_ = index_array(text(), problem_);
  } else {
    rows_ = index_lines(text());
  }
}

DataFile::DataFile(std::string name, std::string array)
    : name_(std::move(name)), held_(std::move(array)), kind_(Kind::kArray) {
  rows_ = index_array(text(), problem_);
}

Json DataFile::row(size_t index) const {
  if (kind_ == Kind::kTable) return table_->row(static_cast<int64_t>(index), where(index));
  const std::string_view bytes = text(index);
  if (kind_ == Kind::kCsv || kind_ == Kind::kText) {
    if (!is_valid_utf8(bytes))
      throw data_error(fmt::format("{}: expected UTF-8 text, found other bytes", where(index)),
                       "save the file as UTF-8");
    return kind_ == Kind::kCsv ? csv_row(csv_, bytes, where(index)) : Json{{"text", bytes}};
  }
  Json json;
  JsonFault fault;
  if (try_parse_json(bytes, json, fault)) return json;
  throw data_error(
      fmt::format("{}: {}", where(index), describe_fault(fault, bytes, rows_[index], kind_ == Kind::kArray)),
      "a row is one JSON object");
}

std::string DataFile::where(size_t index) const {
  const bool counted = kind_ == Kind::kArray || kind_ == Kind::kTable;
  return counted ? fmt::format("{}[{}]", name_, index) : fmt::format("{}:{}", name_, rows()[index].line);
}

size_t DataFile::text_bytes(size_t index) const {
  return kind_ == Kind::kTable ? bytes() / std::max<size_t>(1, size()) : rows()[index].length;
}

std::string DataFile::content_hash(bool whole) const {
  return kind_ == Kind::kTable || !whole ? hash_of_table(text()) : hash_of_text(text());
}

}  // namespace lockstep
