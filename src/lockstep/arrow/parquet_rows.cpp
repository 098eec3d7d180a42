#include "lockstep/arrow/parquet_rows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <nlohmann/json.hpp>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/statistics.h>

namespace lockstep::arrow_rows {
namespace {

constexpr int64_t kMostMemory = int64_t{1} << 30;  // of pages: one is a megabyte where nobody chose otherwise
constexpr int64_t kMostLevels = 10'000'000;        // of one row's column
constexpr int64_t kTogether = 1024;                // levels read at a time

bool is_text(const parquet::ColumnDescriptor& column) {
  const auto& type = column.logical_type();
  const auto old = column.converted_type();
  return (type != nullptr && (type->is_string() || type->is_JSON() || type->is_enum())) ||
         old == parquet::ConvertedType::UTF8 || old == parquet::ConvertedType::JSON ||
         old == parquet::ConvertedType::ENUM;
}

bool is_unsigned(const parquet::ColumnDescriptor& column) {
  const auto old = column.converted_type();
  return old == parquet::ConvertedType::UINT_8 || old == parquet::ConvertedType::UINT_16 ||
         old == parquet::ConvertedType::UINT_32 || old == parquet::ConvertedType::UINT_64;
}

/// Why its values cannot stand in a row; empty: they can.
std::string unread(const parquet::ColumnDescriptor& column) {
  const auto& type = column.logical_type();
  const bool decimal =
      column.converted_type() == parquet::ConvertedType::DECIMAL || (type != nullptr && type->is_decimal());
  if (decimal) return "decimal numbers";
  if (type != nullptr && (type->is_interval() || type->is_float16())) return type->ToString();
  return column.physical_type() == parquet::Type::INT96 ? "time stamps of 96 bits" : "";
}

Json value_of(bool value, const parquet::ColumnDescriptor&) { return value; }
Json value_of(int32_t value, const parquet::ColumnDescriptor& column) {
  return is_unsigned(column) ? Json(static_cast<uint32_t>(value)) : Json(value);
}
Json value_of(int64_t value, const parquet::ColumnDescriptor& column) {
  return is_unsigned(column) ? Json(static_cast<uint64_t>(value)) : Json(value);
}
Json value_of(float value, const parquet::ColumnDescriptor&) { return std::isfinite(value) ? Json(value) : Json(); }
Json value_of(double value, const parquet::ColumnDescriptor&) { return std::isfinite(value) ? Json(value) : Json(); }
Json value_of(const parquet::ByteArray& value, const parquet::ColumnDescriptor& column) {
  return text_or_bytes({reinterpret_cast<const char*>(value.ptr), value.len}, is_text(column));
}
Json value_of(const parquet::FixedLenByteArray& value, const parquet::ColumnDescriptor& column) {
  return text_or_bytes({reinterpret_cast<const char*>(value.ptr), static_cast<size_t>(column.type_length())}, false);
}

size_t bytes_of(const parquet::ByteArray& value, const parquet::ColumnDescriptor&) { return value.len; }
size_t bytes_of(const parquet::FixedLenByteArray&, const parquet::ColumnDescriptor& column) {
  return static_cast<size_t>(column.type_length());
}
template <typename Number>
size_t bytes_of(const Number&, const parquet::ColumnDescriptor&) {
  return 0;
}

/// The record `wanted`, where `started` have begun before the reader's first level.
template <typename Type>
Triples record_of(parquet::ColumnReader& any, int64_t started, int64_t wanted, RowRoom& room) {
  using Value = typename Type::c_type;
  auto& reader = static_cast<parquet::TypedColumnReader<Type>&>(any);
  const parquet::ColumnDescriptor& column = *reader.descr();
  if (column.max_repetition_level() == 0) {
    reader.Skip(wanted - started);  // a level is a row
    started = wanted;
  }
  std::vector<int16_t> definitions(kTogether), repetitions(kTogether);
  const auto values = std::make_unique<Value[]>(kTogether);
  Triples triples;
  int64_t current = started - 1;
  while (reader.HasNext()) {
    int64_t read = 0;
    const int64_t together = column.max_repetition_level() == 0 ? 1 : kTogether;
    const int64_t levels = reader.ReadBatch(together, definitions.data(), repetitions.data(), values.get(), &read);
    if (levels == 0 && read == 0) break;
    int64_t next = 0;
    for (int64_t i = 0; i < levels; ++i) {
      const auto at = static_cast<size_t>(i);
      const int16_t definition = column.max_definition_level() > 0 ? definitions[at] : int16_t{0};
      const int16_t repetition = column.max_repetition_level() > 0 ? repetitions[at] : int16_t{0};
      const bool has_value = definition == column.max_definition_level();
      if (repetition == 0) ++current;
      if (current > wanted) return triples;
      if (has_value && next >= read) throw std::runtime_error("fewer values than levels");
      const auto slot = static_cast<size_t>(next);
      next += has_value ? 1 : 0;
      if (current < wanted) continue;
      room.spend(has_value ? bytes_of(values[slot], column) : 0);
      triples.push_back(
          {definition, repetition, has_value ? std::make_unique<Json>(value_of(values[slot], column)) : nullptr});
      if (static_cast<int64_t>(triples.size()) > kMostLevels)
        throw std::runtime_error("a row of more than 10,000,000 values");
    }
    if (column.max_repetition_level() == 0) break;
  }
  return triples;
}

Triples record_of(parquet::ColumnReader& reader, int64_t started, int64_t wanted, RowRoom& room) {
  switch (reader.type()) {
    case parquet::Type::BOOLEAN:
      return record_of<parquet::BooleanType>(reader, started, wanted, room);
    case parquet::Type::INT32:
      return record_of<parquet::Int32Type>(reader, started, wanted, room);
    case parquet::Type::INT64:
      return record_of<parquet::Int64Type>(reader, started, wanted, room);
    case parquet::Type::FLOAT:
      return record_of<parquet::FloatType>(reader, started, wanted, room);
    case parquet::Type::DOUBLE:
      return record_of<parquet::DoubleType>(reader, started, wanted, room);
    case parquet::Type::BYTE_ARRAY:
      return record_of<parquet::ByteArrayType>(reader, started, wanted, room);
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return record_of<parquet::FLBAType>(reader, started, wanted, room);
    default:
      throw std::runtime_error("a type that is not read");
  }
}

/// Rows that start in a page of the first version, whose header does not say it.
int64_t rows_starting(const parquet::DataPage& page, int16_t max_repetition) {
  if (page.type() != parquet::PageType::DATA_PAGE) throw std::runtime_error("a page of a kind that is not read");
  const auto& first = static_cast<const parquet::DataPageV1&>(page);
  parquet::LevelDecoder decoder;
  decoder.SetData(first.repetition_level_encoding(), max_repetition, first.num_values(), first.data(), first.size());
  std::vector<int16_t> levels(kTogether);
  int64_t rows = 0;
  for (int64_t left = first.num_values(); left > 0;) {
    const int read = decoder.Decode(static_cast<int>(std::min(left, kTogether)), levels.data());
    if (read <= 0) throw std::runtime_error("a page with fewer levels than its header says");
    rows += std::count(levels.begin(), levels.begin() + read, int16_t{0});
    left -= read;
  }
  return rows;
}

}  // namespace

ParquetRows::ParquetRows(std::span<const std::byte> bytes, std::function<void()> forget)
    : pool_(::arrow::default_memory_pool(), kMostMemory), forget_(std::move(forget)) {
  const auto buffer = std::make_shared<::arrow::Buffer>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                        static_cast<int64_t>(bytes.size()));
  file_ = parquet::ParquetFileReader::Open(std::make_shared<::arrow::io::BufferReader>(buffer),
                                           parquet::ReaderProperties(&pool_));
  const auto& meta = *file_->metadata();
  for (int group = 0; group < meta.num_row_groups(); ++group) {
    const int64_t rows = meta.RowGroup(group)->num_rows();
    if (rows < 0 || rows > INT64_MAX - rows_) throw std::runtime_error("a row group with an impossible number of rows");
    rows_ += rows;
    group_ends_.push_back(rows_);
  }
  if (meta.num_columns() > 100'000) throw std::runtime_error("more than 100,000 columns");
  shape_ = RecordShape(*meta.schema()->group_node());
  // A compression that is not read is told now, not with the first row that is needed.
  for (int group = 0; group < std::min(1, meta.num_row_groups()); ++group) {
    for (int leaf = 0; leaf < meta.num_columns(); ++leaf) {
      const std::string why = unread(*meta.schema()->Column(leaf));
      if (!why.empty())
        throw std::runtime_error("column " + meta.schema()->Column(leaf)->path()->ToDotString() + " holds " + why);
      (void)file_->RowGroup(group)->GetColumnPageReader(leaf);
    }
  }
}

/// The file may be many times larger than memory, and rows come in any order.
void ParquetRows::count_page() {
  constexpr uint32_t kPagesBetween = 8;  // a megabyte each where nobody chose otherwise
  if (++pages_ % kPagesBetween == 0) forget_();
}

const ParquetRows::Starts& ParquetRows::starts_of(int group, int leaf) {
  const auto found = starts_.find({group, leaf});
  return found != starts_.end() ? found->second : starts_[{group, leaf}] = find_starts(group, leaf);
}

ParquetRows::Starts ParquetRows::find_starts(int group, int leaf) {
  const auto& meta = *file_->metadata();
  const parquet::ColumnDescriptor& column = *meta.schema()->Column(leaf);
  Starts starts{0};
  const auto pages = file_->RowGroup(group)->GetColumnPageReader(leaf);
  bool says = true;  // the page's header says how many rows it has
  pages->set_data_page_filter([&](const parquet::DataPageStats& page) {
    says = column.max_repetition_level() == 0 || page.num_rows.has_value();
    if (says) starts.push_back(starts.back() + (column.max_repetition_level() == 0 ? page.num_values : *page.num_rows));
    return says;
  });
  while (const auto page = pages->NextPage()) {
    count_page();
    if (page->type() == parquet::PageType::DICTIONARY_PAGE) continue;
    starts.push_back(starts.back() +
                     rows_starting(static_cast<const parquet::DataPage&>(*page), column.max_repetition_level()));
  }
  if (starts.back() == meta.RowGroup(group)->num_rows()) return starts;
  throw std::runtime_error("row group " + std::to_string(group) + ", column " + column.path()->ToDotString() +
                           ": expected " + std::to_string(meta.RowGroup(group)->num_rows()) + " rows, found " +
                           std::to_string(starts.back()) + " in its pages");
}

Triples ParquetRows::triples_of(int group, int leaf, int64_t row, RowRoom& room) {
  const Starts& starts = starts_of(group, leaf);
  count_page();
  const auto page = std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
  auto pages = file_->RowGroup(group)->GetColumnPageReader(leaf);
  pages->set_data_page_filter(
      [page, seen = std::ptrdiff_t{0}](const parquet::DataPageStats&) mutable { return seen++ < page; });
  const auto reader = parquet::ColumnReader::Make(file_->metadata()->schema()->Column(leaf), std::move(pages), &pool_);
  return record_of(*reader, starts[static_cast<size_t>(page)], row, room);
}

Json ParquetRows::row(int64_t index) {
  if (index < 0 || index >= rows_) throw std::out_of_range("a row that is not in the file");
  const std::lock_guard lock(mutex_);
  const auto group = std::upper_bound(group_ends_.begin(), group_ends_.end(), index) - group_ends_.begin();
  const int64_t begin = group == 0 ? 0 : group_ends_[static_cast<size_t>(group - 1)];
  std::vector<Triples> leaves;
  const int columns = file_->metadata()->num_columns();
  RowRoom room;
  for (int leaf = 0; leaf < columns; ++leaf)
    leaves.push_back(triples_of(static_cast<int>(group), leaf, index - begin, room));
  return shape_.assemble(leaves);
}

}  // namespace lockstep::arrow_rows
