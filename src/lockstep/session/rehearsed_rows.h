// The rows that memory is predicted for: the longest of the data, or typical ones where there is none. Their media have
// shapes and no values.
//
// Example:
//   const auto rows = RehearsedRows::of(data, processor, options, world);
//   const MemoryForecast forecast = rehearse(model, plan, rows.step(batch, 2), {});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"
#include "lockstep/exec/rehearsal.h"
#include "lockstep/session/model_folder.h"

namespace lockstep {

/// Up to `count` of 64 rows (those with the most text, and others drawn from all), the longest first; those that
/// `features_of` refuses with a UserError are left out.
std::vector<Features> longest_rows(const Dataset& rows, const std::function<Features(const Sample&)>& features_of,
                                   size_t count);

/// What a device map of a run that trains nothing is made for: so many of the longest rows at once, without the values
/// of their media. Empty when none can be used: the run itself will name them.
RowsOfStep longest_batch(const Dataset& rows, const std::function<Features(const Sample&)>& features_of, int64_t batch);

class RehearsedRows {
 public:
  /// Of a data set that `world` ranks share. Throws UserError(kData) when none of the rows looked at can be used.
  static RehearsedRows of(const Dataset& rows, const Processor& processor, const ProcessOptions& options, int world);
  /// Of bins of rows, `count` in all, of which `heaviest` are those that may need most. A batch counts bins.
  static RehearsedRows of_bins(const Dataset& rows, const Processor& processor, const ProcessOptions& options,
                               int world, const std::vector<std::vector<int64_t>>& heaviest, int64_t count);
  /// Of rows that are known by their like alone: as many of them as a bin of `tokens` holds, the longest first.
  RehearsedRows in_bins(int64_t tokens) const;
  /// Rows of `tokens` tokens (0: 2048, or as many as the model has positions), with a picture where the model sees.
  static RehearsedRows typical(const ModelFolder& folder, int64_t tokens);

  /// Micro-batches that are all alike: the longest rows, again from the first where there are fewer.
  RowsOfStep step(int64_t batch, int64_t micro_batches) const;
  /// The same of each batch that may need most.
  std::vector<RowsOfStep> steps(int64_t batch, int64_t micro_batches) const;
  /// Batches that may need most, where texts and media are long in different rows: the longest rows in all; the longest
  /// texts; of each kind of media the largest; and beside the largest media the longest text, to whose length all rows are
  /// filled up. Those that are the same are there once.
  RowsOfStep batches(int64_t batch) const;
  /// What a loader holds of them in memory, ready or in the making, while a step runs, by the mean of those looked at; `batch` as
  /// above.
  int64_t waiting_bytes(int64_t batch) const;
  int64_t share() const;                                 // rows, or bins, of a rank, dealt out evenly; 0: any number
  std::vector<Features> looked_at() const;               // the longest first
  const std::string& source() const { return source_; }  // "the longest of 64 rows of the data set"

 private:
  using Unit = std::vector<Features>;  // what a batch counts: a row, or all rows of a bin
  using Order = std::vector<size_t>;   // of units_
  std::vector<Order> orders() const;
  int64_t of_first_rank(int64_t batch) const;

  std::vector<Unit> units_;  // the longest first
  int64_t count_ = 0;        // rows, or bins, in all; 0: any number
  int64_t world_ = 1;
  std::string source_;
};

}  // namespace lockstep
