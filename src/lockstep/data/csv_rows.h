// CSV as Python's csv module reads it ("excel"): records found by one scan, fields parsed when a record is asked for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/row_index.h"

namespace lockstep {

struct CsvFile {
  char delimiter = ',';
  std::vector<std::string> columns;  // of the first record
  std::vector<RowSpan> records;      // the others; empty lines are none
};

/// Throws UserError(kData) naming `name` and the line for a quote that is never closed, and for a first record that names no
/// columns, or one twice.
CsvFile index_csv(std::string_view bytes, char delimiter, const std::string& name);

/// Fields of a record, quotes taken off. False, with `problem`, for what stands behind a closing quote.
bool csv_fields(std::string_view record, char delimiter, std::vector<std::string>& fields, std::string& problem);

/// A record as a row: texts by column; lists of media that are written as such, lists. Throws UserError(kData) naming `where`.
Json csv_row(const CsvFile& file, std::string_view record, const std::string& where);

}  // namespace lockstep
