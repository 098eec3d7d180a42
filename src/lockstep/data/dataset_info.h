// Entries of LLaMA-Factory's dataset_info.json and of InternVL's meta files (objects by name) and of ms-swift's (a list).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/row_mapping.h"

namespace lockstep {

struct InfoEntry {
  std::string path;                  // of a file or folder
  std::string subset, split;         // empty: not said
  int64_t count = -1;                // rows wanted; -1: all
  std::vector<std::string> subsets;  // that an entry of ms-swift lists
  RowMapping mapping;
  std::string media_dir;  // where its relative media are; empty: beside the file of entries
};

/// What `file` says of `name`; nothing where it does not know it. `known` grows by its names. Throws UserError(kData) for a file
/// that is none, and for an entry that names no file here, or rows of another kind.
std::optional<InfoEntry> find_entry(const std::filesystem::path& file, const std::string& name,
                                    std::vector<std::string>& known);

}  // namespace lockstep
