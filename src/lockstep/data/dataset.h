// Data sets as files: JSONL or JSON array, several of them, random access by row; broken rows counted or refused. And as text
// that a program holds.
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
#include "lockstep/data/row_piece.h"
#include "lockstep/data/sample.h"

namespace lockstep {

struct DatasetOptions {
  bool strict = false;         // a broken row is an error, instead of skipped and counted
  std::string root_image_dir;  // where relative media are looked for behind the data file's folder; empty: nowhere
  bool may_be_empty = false;   // files without a whole row are no error
  bool draws = false;          // of "path#N" N rows are chosen by `seed`; else the first N
  uint64_t seed = 42;
  int64_t max_samples = 0;              // of each data set that no count is given for, the first; 0: all
  std::vector<std::string> infos = {};  // ms-swift's --custom_dataset_info: files of names
  std::string dataset_dir = {};         // has LLaMA-Factory's dataset_info.json
  std::vector<std::pair<std::string, std::string>> columns = {};  // a file's name of a column, and what it is
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

/// Indexes the files once (line offsets); rows are parsed when asked for. "path#N" takes N rows, each as often as the others
/// or once more when N is larger. Immutable after construction; sample() is thread-safe.
class Dataset {
 public:
  /// Throws UserError(kData) when a file is missing, unreadable or has no row; with strict, also for the first broken
  /// row.
  Dataset(const std::vector<std::string>& paths, const DatasetOptions& options);
  /// The elements of a JSON array, which messages call "NAME[16]"; without root_image_dir relative media lie in the folder that
  /// the process stands in. Throws the same.
  static Dataset of_text(const std::string& name, std::string array, const DatasetOptions& options);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  int64_t size() const;                        // whole rows only
  Sample sample(int64_t index) const;          // throws std::out_of_range, UserError(kData)
  Sample sample_or_name(int64_t index) const;  // the same; of a row that cannot be read its place alone
  /// Of the row's JSON, of a piece its share: about how long it is, without parsing it.
  int64_t text_bytes(int64_t index) const;
  bool goes_on(int64_t index) const;       // a piece with another behind it: it is about as long as pieces are
  std::string where(int64_t index) const;  // "rows.jsonl:17"
  const std::vector<BrokenRow>& broken() const;
  /// What a person should know of how the files were read: columns that nothing reads, rows that were drawn.
  const std::vector<std::string>& notices() const;
  /// Whole and broken rows in the order of the files: `whole` gets an index, `broken` an entry of broken().
  void in_file_order(const std::function<void(int64_t index)>& whole,
                     const std::function<void(const BrokenRow& row)>& broken) const;
  /// Of the files' names and every byte in them, and of the rows taken, in pieces or not: compared on resume and between ranks.
  std::string fingerprint() const;
  std::string describe_pieces()
      const;  // "in 17 pieces (0f3c…)", which is another where one ends elsewhere; "": whole rows
  /// Of where relative media are looked for, and of sizes and times of change of some hundred of them: what work that
  /// was cut short depends on besides. Reads these rows; media that are not there count as such.
  std::string media_fingerprint() const;
  /// Moves a part of the rows, chosen by `seed`, to the second: below 1 it is a ratio, from 1 on a number of rows. Throws
  /// UserError(kData) where no row would stay.
  static std::pair<Dataset, Dataset> split(Dataset whole, double part, uint64_t seed);
  /// These pieces of its rows in place of them. A data set is cut once.
  static Dataset in_pieces(const Dataset& whole, std::vector<RowPiece> pieces);

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl, std::vector<int64_t> rows);
  static Dataset all_of(const std::shared_ptr<const Impl>& impl);
  std::shared_ptr<const Impl> impl_;
  std::vector<int64_t> rows_;
  std::vector<RowPiece> pieces_;  // by row; empty: whole rows
  bool lists_broken_ = true;      // of two parts of a data set the first does
};

}  // namespace lockstep
