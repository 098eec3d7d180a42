// One file of rows, whatever its kind: JSONL, a JSON array, csv, lines of text, Parquet, Arrow. Rows are found when it is opened
// and read when they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/data/csv_rows.h"
#include "lockstep/data/row_index.h"
#include "lockstep/data/row_table.h"

namespace lockstep {

class DataFile {
 public:
  /// Throws UserError(kData) for what is no file, and for files of a kind that no reader knows.
  explicit DataFile(const std::string& name);
  /// The elements of a JSON array that a program holds, under a name for messages.
  DataFile(std::string name, std::string array);

  const std::string& name() const { return name_; }
  size_t size() const { return table_ ? static_cast<size_t>(table_->rows()) : rows().size(); }
  /// Throws UserError(kData) naming the row. Thread-safe.
  Json row(size_t index) const;
  /// "train.jsonl:17"; elements of an array are counted, since many may share a line: "train.json[16]". So are rows of tables.
  std::string where(size_t index) const;
  size_t text_bytes(size_t index) const;  // about how long it is, without reading it
  size_t bytes() const { return text().size(); }
  /// Whether all rows can be looked at when the file is opened: not of a table, which may be many times larger than memory.
  bool is_text() const { return table_ == nullptr; }
  const std::string& problem() const { return problem_; }  // of the file beside its rows; empty: none
  /// `whole`: of every byte of a text; else of its size and both ends, as of a table.
  std::string content_hash(bool whole = true) const;
  void forget() const {
    if (map_) map_->forget(0, map_->bytes().size());
  }

 private:
  enum class Kind { kLines, kArray, kCsv, kText, kTable };
  std::string_view text() const {
    if (!map_) return held_;
    return {reinterpret_cast<const char*>(map_->bytes().data()), map_->bytes().size()};
  }
  std::string_view text(size_t row) const { return text().substr(rows()[row].offset, rows()[row].length); }
  const std::vector<RowSpan>& rows() const { return kind_ == Kind::kCsv ? csv_.records : rows_; }

  std::string name_;  // as the person wrote it
  std::optional<MappedFile> map_;
  std::string held_;  // where there is no file
  Kind kind_ = Kind::kLines;
  std::vector<RowSpan> rows_;
  CsvFile csv_;
  std::unique_ptr<RowTable> table_;
  std::string problem_;
};

}  // namespace lockstep
