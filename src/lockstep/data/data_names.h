// What --dataset names: files, folders of them, names of a dataset_info.json; each with ":subset" and "#N".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/row_mapping.h"

namespace lockstep {

struct DatasetOptions;

/// Files whose rows are one data set, and how they are to be read.
struct NamedData {
  std::string name;                // as the person wrote it, without "#N"
  std::vector<std::string> files;  // at least one
  int64_t count = -1;              // rows wanted of all; -1: each once
  RowMapping mapping;
  std::string media_dir;          // where its relative media are looked for too; empty: nowhere
  std::vector<std::string> told;  // for a person: which files a folder gave
};

/// Throws UserError(kData) for what is no file, folder or name, and for entries that nothing here can read.
NamedData find_data(const std::string& argument, const DatasetOptions& options);

}  // namespace lockstep
