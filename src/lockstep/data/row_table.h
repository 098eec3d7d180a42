// Rows of a Parquet or Arrow file, read by Apache Arrow: a library of its own, opened when such a file is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep {

struct ArrowApi;
struct ArrowTable;

class RowTable {
 public:
  /// Whether the bytes are those of such a file.
  static bool is_table(std::string_view bytes);

  /// Borrows the bytes, which are a map of a file. Throws UserError(kData) naming the file for what Arrow cannot read, and where the library is not there,
  /// with how to get it.
  RowTable(const std::string& name, std::span<const std::byte> bytes);
  ~RowTable();
  RowTable(const RowTable&) = delete;
  RowTable& operator=(const RowTable&) = delete;

  int64_t rows() const { return rows_; }
  /// As the same row stands in JSON lines: bytes as data: URIs, what is absent left out. Throws UserError(kData) naming `where`.
  /// Thread-safe: one row is read at a time.
  Json row(int64_t index, const std::string& where) const;

 private:
  const ArrowApi* api_;
  ArrowTable* table_ = nullptr;
  int64_t rows_ = 0;
};

}  // namespace lockstep
