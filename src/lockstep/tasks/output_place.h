// Whether what a task will write has a place, looked at before anything is computed.
//
// Example:
//   require_folder_place("--output_dir", options.output_dir);
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// A folder that is there or can be made, by this user. Throws UserError(kUsage).
void require_folder_place(const std::string& flag, const std::filesystem::path& folder);

/// A file in a folder that is there, where this user may write. Throws UserError(kUsage).
void require_file_place(const std::string& flag, const std::filesystem::path& file);

}  // namespace lockstep
