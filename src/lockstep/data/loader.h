// Samples in a seeded order, sharded over ranks, processed ahead on threads, resumable at the exact sample.
//
// The order is a function of (seed, epoch) alone, never of world size or threads: global micro-batch m of an epoch
// takes rows [m*G, (m+1)*G) of the shuffled order, G = batch_size * world; rank r takes the r-th slice of batch_size.
// The tail may leave some ranks with fewer rows or none; they get a shorter or empty batch, never a repeated row (the
// step contract copes).
//
// Example:
//   Loader loader(dataset, processor, {.batch_size = 2, .rank = 0, .world = 2, .seed = 42});
//   while (auto batch = loader.next()) train(*batch);   // nullopt: the epoch has ended
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/features.h"
#include "lockstep/data/processor.h"
#include "lockstep/data/row_groups.h"

namespace lockstep {

struct LoaderOptions {
  int64_t batch_size = 1;  // rows, or bins of rows, per rank and micro-batch
  int rank = 0, world = 1;
  uint64_t seed = 42;
  bool shuffle = true;
  bool strict = false;   // a row whose media or text cannot be processed is an error, instead of skipped and counted
  int num_workers = 1;   // threads; 0: processes in the caller
  int64_t prefetch = 4;  // micro-batches held ready
  int64_t patience_s = 600;  // next() waits no longer than this for one micro-batch
  ProcessOptions process;
  bool prompts = false;  // prompt_features instead of train_features
  /// Rows to take, in this order, instead of all of them shuffled; an epoch is one pass over it.
  std::optional<std::vector<int64_t>> order = {};
  /// Of rows that are trained together: batch_size then counts bins, as does a cursor, and an epoch shuffles them.
  std::shared_ptr<const Bins> bins = {};
  bool drop_last = false;  // rows that fill no micro-batch of all ranks at an epoch's end are left out of it
  /// What comes in which order in an epoch, in place of epoch_order().
  std::function<std::vector<int64_t>(int64_t epoch)> arranged = {};
};

/// Where the next micro-batch begins, in *rows (or bins) of the epoch's order consumed by all ranks*: independent of world
/// size.
/// Resumed with another world size or batch size no row is lost or repeated; only their grouping in micro-batches
/// differs.
struct LoaderCursor {
  int64_t epoch = 0;
  int64_t rows = 0;
  bool operator==(const LoaderCursor&) const = default;
};

/// A row that could not be used, and why.
struct SkippedRow {
  int64_t row = 0;  // in the data set
  std::string why;
};

/// Rows of one micro-batch on this rank; fewer than batch_size when rows were skipped or at the tail.
struct LoadedBatch {
  std::vector<Features> rows;
  LoaderCursor after;  // the cursor after this micro-batch, equal on all ranks
  std::vector<SkippedRow> skipped;
};

/// Borrows the data set and the processor, which must outlive it. One thread calls it; its workers are its own.
class Loader {
 public:
  /// Begins at epoch 0. Throws InternalError for options that make no sense.
  Loader(const Dataset& dataset, const Processor& processor, const LoaderOptions& options);
  ~Loader();  // waits for the rows that workers are busy with, and no longer

  /// The next micro-batch of this epoch; nullopt when the epoch is over (on all ranks at the same call), until seek.
  /// Rethrows, in order, what a worker threw: any error but UserError(kData), and that too when strict.
  std::optional<LoadedBatch> next();
  /// Begins at the given place; anything prefetched is dropped. Throws UserError(kCheckpoint) for a place outside.
  void seek(const LoaderCursor& cursor);
  LoaderCursor cursor() const;        // where the next micro-batch begins
  int64_t batches_per_epoch() const;  // from the epoch's start
  int64_t rows_per_epoch() const;     // or bins, as a cursor counts them
  /// Where the cursor stands when an epoch is over that goes on from `rows`: drop_last leaves out those that fill no
  /// micro-batch from there on.
  int64_t epoch_end(int64_t rows) const;
  /// The rows that next() will give, for people who wait for them: "a.jsonl:17, a.jsonl:3"; the first few.
  std::string next_places() const;
  int64_t skipped_rows() const;                      // so far, on this rank
  std::vector<std::string> skipped_reasons() const;  // the first 20

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The shuffled order of an epoch: a permutation of [0, size), the same on every machine.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);
/// The same by a buffer of so many rows, of which one at random goes and the next of the file comes: files are read from
/// their beginning to their end. Source: datasets 4 BufferShuffledExamplesIterable.
std::vector<int64_t> buffered_order(int64_t size, int64_t buffer, uint64_t seed, int64_t epoch);

}  // namespace lockstep
