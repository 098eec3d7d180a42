// Data sets as files: JSONL or JSON array, several of them, random access by row; broken rows counted or refused.
//
// Example:
//   Dataset train({"train.jsonl", "more.json#500"}, {.strict = false, .root_image_dir = ""});
//   Sample s = train.sample(17);
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/sample.h"

namespace lockstep {

struct DatasetOptions {
  bool strict = false;         // a broken row is an error, instead of skipped and counted
  std::string root_image_dir;  // prefix of relative media paths; empty: the data file's folder
  bool may_be_empty = false;   // files without a whole row are no error
  /// Rows are found and not read: a broken one shows when it is its turn. The fingerprint is of sizes and of both ends of a
  /// file, in place of every byte.
  bool streaming = false;
};

/// A row that could not be read: file, line, column or field, and why; and how many whole rows stand before it.
struct BrokenRow {
  std::string where, why;
  int64_t rows_before = 0;
};

/// `error` of a row that ends a strict run, with the flag that leaves such rows out.
UserError refused_by_strict(const UserError& error);

/// Indexes the files once (line offsets); rows are parsed when asked for. "path#N" takes N rows (repeating when N is
/// larger). Immutable after construction; sample() is thread-safe.
class Dataset {
 public:
  /// Throws UserError(kData) when a file is missing, unreadable or has no row; with strict, also for the first broken
  /// row.
  Dataset(const std::vector<std::string>& paths, const DatasetOptions& options);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  int64_t size() const;                     // whole rows only
  Sample sample(int64_t index) const;       // throws std::out_of_range, UserError(kData)
  int64_t text_bytes(int64_t index) const;  // of the row's JSON: about how long it is, without parsing it
  std::string where(int64_t index) const;   // "rows.jsonl:17"
  const std::vector<BrokenRow>& broken() const;
  /// Whole and broken rows in the order of the files: `whole` gets an index, `broken` an entry of broken().
  void in_file_order(const std::function<void(int64_t index)>& whole,
                     const std::function<void(const BrokenRow& row)>& broken) const;
  /// Of the files' names and every byte in them, and of the rows taken: compared on resume and between ranks.
  std::string fingerprint() const;
  /// Of where relative media are looked for, and of sizes and times of change of some hundred of them: what work that
  /// was cut short depends on besides. Reads these rows; media that are not there count as such.
  std::string media_fingerprint() const;
  /// Moves the last `ratio` of rows, chosen by `seed`, to the second.
  static std::pair<Dataset, Dataset> split(Dataset whole, double ratio, uint64_t seed);

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl, std::vector<int64_t> rows);
  std::shared_ptr<const Impl> impl_;
  std::vector<int64_t> rows_;
};

}  // namespace lockstep
