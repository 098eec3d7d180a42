// Which rows of a file can be read, and what of them is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/data_file.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/media_folders.h"
#include "lockstep/data/row_mapping.h"

namespace lockstep {

/// A file, and how its rows are read.
struct RowSource {
  DataFile file;
  RowMapping mapping;
  MediaFolders folders;

  Json row(size_t index) const;
  Sample sample(size_t index, bool looks) const;
};

/// Which rows of a file are whole. The row's place is cut from the reason, since BrokenRow names it apart.
struct FileVerdict {
  std::vector<int64_t> whole;
  std::vector<BrokenRow> broken;
  std::set<std::string> unread;   // columns
  std::set<std::string> recased;  // columns that are read by other letters: "Images as images"
  std::set<std::string> mapped;   // columns of --columns that a row has
  std::string unmarked;           // the first row whose boxes no text has a place for; empty: there is none
  std::string repeated;           // the first row in which somebody speaks twice in a row; empty: there is none
};

/// Every row is parsed once, on several threads where that pays: the verdict does not depend on their number. Of a table the first
/// row alone: reading all may take as long as an epoch.
FileVerdict judge_file(const RowSource& source);

/// All rows, whatever they are; the first says which columns are read.
FileVerdict take_file(const RowSource& source);

}  // namespace lockstep
