// Rows of an Arrow file, or of a stream of Arrow messages as the datasets library writes them; borrowed bytes, which uncompressed
// batches are views of.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>

#include "lockstep/arrow/value_text.h"

namespace lockstep::arrow_rows {

class IpcRows {
 public:
  /// Finds the batches. Throws std::exception.
  IpcRows(std::span<const std::byte> bytes, std::function<void()> forget);

  int64_t rows() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Throws std::exception. Thread-safe.
  Json row(int64_t index);

 private:
  void add(std::shared_ptr<::arrow::RecordBatch> batch);

  ::arrow::CappedMemoryPool pool_;
  std::function<void()> forget_;
  std::atomic<uint32_t> taken_{0};
  std::vector<std::shared_ptr<::arrow::RecordBatch>> batches_;
  std::vector<int64_t> ends_;  // rows up to the end of each batch
};

}  // namespace lockstep::arrow_rows
