#include "lockstep/data/media_folders.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Whether two files are one, or hold the same bytes.
bool are_alike(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  if (fs::equivalent(a, b, ignored)) return true;
  if (!fs::is_regular_file(a, ignored) || !fs::is_regular_file(b, ignored)) return false;
  if (fs::file_size(a, ignored) != fs::file_size(b, ignored)) return false;
  std::ifstream one(a, std::ios::binary), other(b, std::ios::binary);
  return std::equal(std::istreambuf_iterator<char>(one), {}, std::istreambuf_iterator<char>(other), {});
}

}  // namespace

std::string find_medium(const MediaFolders& folders, const fs::path& path, const std::string& where) {
  const auto in = [&](const fs::path& folder) { return fs::absolute(folder / path).lexically_normal(); };
  if (folders.folders.empty()) return in("").string();
  const fs::path first = in(folders.folders.front());
  if (path.is_absolute() || !folders.looks) return first.string();
  fs::path found;
  for (const auto& folder : folders.folders) {
    const fs::path here = in(folder);
    std::error_code ignored;
    if (!fs::exists(here, ignored) || here == found) continue;
    if (found.empty()) {
      found = here;
    } else if (!are_alike(found, here)) {
      throw data_error(
          fmt::format("{}: medium \"{}\": expected one file of that name, found two that differ: {} and {}", where,
                      path.string(), found.string(), here.string()),
          "write the path from the root, or run in another folder");
    }
  }
  return (found.empty() ? first : found).string();
}

}  // namespace lockstep
