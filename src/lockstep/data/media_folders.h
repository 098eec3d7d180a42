// Where relative paths of media are looked for: the data file's folder first, then those that a person names, then the working
// directory, as the stacks do that people come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct MediaFolders {
  MediaFolders() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one folder is the usual case
  MediaFolders(const std::filesystem::path& only) : folders{only} {}
  MediaFolders(const char* only) : folders{only} {}  // NOLINT(google-explicit-constructor): as above
  MediaFolders(std::vector<std::filesystem::path> all, bool look) : folders(std::move(all)), looks(look) {}

  std::vector<std::filesystem::path> folders;  // in the order in which they are looked in; absolute
  bool looks = true;                           // false: the first is taken without a look at the disk
};

/// The absolute path of the first folder that has `path`; of the first one where none does. Throws UserError(kData) naming
/// `where` when two folders have files of that name that differ.
std::string find_medium(const MediaFolders& folders, const std::filesystem::path& path, const std::string& where);

}  // namespace lockstep
