// Whether what a task will write has a place, looked at before anything is computed.
//
// Example:
//   require_folder_place("--output_dir", options.output_dir);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// A folder that is there or can be made, by this user. Throws UserError(kUsage).
void require_folder_place(const std::string& flag, const std::filesystem::path& folder);

/// The disk of that folder has room for what is to be written: `what` says so in a message ("1000 rows of 64 numbers").
/// Throws UserError(kUsage).
void require_disk(const std::string& flag, const std::filesystem::path& folder, int64_t bytes, const std::string& what);

/// A file, or none yet: no folder, device or pipe. Throws UserError(kUsage).
void require_file_kind(const std::string& flag, const std::filesystem::path& file);

/// The same in a folder that is there, where this user may write. Throws UserError(kUsage).
void require_file_place(const std::string& flag, const std::filesystem::path& file);

/// What is read is not written over. `sources`: data sets as they are given, "rows.jsonl#100". Throws UserError(kUsage).
void require_other_file(const std::string& flag, const std::filesystem::path& file,
                        const std::vector<std::string>& sources);

}  // namespace lockstep
