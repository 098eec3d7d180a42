// Rows of a Parquet file by their number, read from its pages: of a column chunk only the page that holds the row is
// decompressed, however large its row group is.
//
// The file is a map of memory, borrowed; pages that are not read cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <arrow/memory_pool.h>
#include <parquet/file_reader.h>

#include "lockstep/arrow/parquet_record.h"
#include "lockstep/arrow/value_text.h"

namespace lockstep::arrow_rows {

class ParquetRows {
 public:
  /// Reads the footer. Throws std::exception.
  ParquetRows(std::span<const std::byte> bytes, std::function<void()> forget);

  int64_t rows() const { return rows_; }
  /// Throws std::exception. Thread-safe.
  Json row(int64_t index);

 private:
  using Starts = std::vector<int64_t>;  // by page: how many rows of the group start before it
  const Starts& starts_of(int group, int leaf);
  Starts find_starts(int group, int leaf);
  Triples triples_of(int group, int leaf, int64_t row, RowRoom& room);

  void count_page();

  ::arrow::CappedMemoryPool pool_;
  std::function<void()> forget_;
  std::unique_ptr<parquet::ParquetFileReader> file_;
  std::vector<int64_t> group_ends_;  // rows up to the end of each group
  int64_t rows_ = 0;
  RecordShape shape_;
  std::mutex mutex_;  // guards what follows
  std::map<std::pair<int, int>, Starts> starts_;
  uint32_t pages_ = 0;  // read so far
};

}  // namespace lockstep::arrow_rows
