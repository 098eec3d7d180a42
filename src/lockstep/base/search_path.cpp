#include "lockstep/base/search_path.h"

#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "lockstep/base/text_format.h"

namespace lockstep {

std::string program_on(const std::string& search_path, const std::string& name) {
  namespace fs = std::filesystem;
  for (const auto& folder : split(search_path, ':')) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored) && ::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return "";
}

}  // namespace lockstep
