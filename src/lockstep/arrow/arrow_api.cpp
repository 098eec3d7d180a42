// The library's table of functions.
#include "lockstep/data/arrow_api.h"

#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/arrow/ipc_rows.h"
#include "lockstep/arrow/parquet_rows.h"

namespace lockstep {

struct ArrowTable {
  std::unique_ptr<arrow_rows::ParquetRows> parquet;
  std::unique_ptr<arrow_rows::IpcRows> ipc;
};

namespace {

ArrowTable* open_table(std::span<const std::byte> bytes, std::function<void()> forget) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto table = std::make_unique<ArrowTable>();
  if (text.starts_with("PAR1")) {
    table->parquet = std::make_unique<arrow_rows::ParquetRows>(bytes, std::move(forget));
  } else {
    table->ipc = std::make_unique<arrow_rows::IpcRows>(bytes, std::move(forget));
  }
  return table.release();
}

int64_t rows_of(const ArrowTable* table) { return table->parquet ? table->parquet->rows() : table->ipc->rows(); }

std::string row_of(ArrowTable* table, int64_t index) {
  const Json row = table->parquet ? table->parquet->row(index) : table->ipc->row(index);
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void close_table(ArrowTable* table) { delete table; }

}  // namespace
}  // namespace lockstep

extern "C" const lockstep::ArrowApi* lockstep_arrow_api() {
  static const lockstep::ArrowApi kApi{
      .open = lockstep::open_table, .rows = lockstep::rows_of, .row = lockstep::row_of, .close = lockstep::close_table};
  return &kApi;
}
