// Finished rows on disk while a long run goes on, so that a run that is cut short continues where it stopped.
//
// A folder beside the output. Every rank appends to a file of its own: no rank waits for another, and the number of
// ranks may differ from run to run. A record is whole (length and checksum) or it does not count, so a run may be
// killed at any moment. When all rows are there, the output is written from it in input order and the folder goes.
//
// Example:
//   RowJournal journal("answers.jsonl.unfinished", identity, control);   // collective
//   for (row : rows not in journal.done()) journal.append(row, line);
//   journal.seal(control);                                               // collective
//   if (rank 0) { for (…) file << journal.read(row); journal.remove(); }
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file_lock.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {

/// What two runs' rows depend on, where it differs: "batch_size: 2 there, 4 now; quantised: nothing there, …"; empty: nowhere.
std::string identity_difference(const Json& theirs, const Json& mine);

class RowJournal {
 public:
  /// Opens the folder, or makes it. `identity`: what the rows depend on (model, data, flags); a folder of another run
  /// is refused with UserError(kUsage) naming the differences, unless `start_over`, which empties it; one that a run
  /// writes in, always. Collective.
  RowJournal(const std::filesystem::path& dir, const Json& identity, bool start_over, Communicator& control);
  ~RowJournal();

  /// Rows that were there when it was opened, the same on every rank, and after seal() all of them.
  bool holds(int64_t row) const { return places_.contains(row); }
  int64_t size() const { return static_cast<int64_t>(places_.size()); }

  /// Throws UserError(kData) when the disk is full: what was appended before stays.
  void append(int64_t row, std::string_view bytes);

  /// The rows of all ranks can be read after it. Throws UserError(kData) where the file of a rank is not to be seen here. Collective.
  void seal(Communicator& control);
  std::string read(int64_t row) const;  // throws InternalError for a row that is not there

  /// Takes the folder away.
  void remove();

  /// Of what rows a folder that nobody writes in is; null: there is none, a run writes in it, or it does not say.
  static Json identity_of_idle(const std::filesystem::path& dir);

 private:
  struct Place {
    size_t file = 0;
    int64_t offset = 0, size = 0;
  };
  struct Output;
  void index();
  void await_file(int rank, const std::string& told);

  std::filesystem::path dir_;
  std::optional<FileLock> lock_;  // of rank 0
  std::vector<std::filesystem::path> files_;
  std::map<int64_t, Place> places_;
  std::unique_ptr<Output> output_;
  int64_t kept_bytes_ = 0;  // in its file, which this run has begun
};

/// For the files that are written from a journal: UserError(kData), and that nothing is lost.
NewFile::Refused journal_keeps_rows();

}  // namespace lockstep
