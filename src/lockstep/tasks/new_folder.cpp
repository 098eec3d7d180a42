#include "lockstep/tasks/new_folder.h"

#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/new_file.h"

namespace lockstep {
namespace fs = std::filesystem;

void write_new_folder(const fs::path& output, const std::function<void(const fs::path& dir)>& write) {
  if (fs::exists(output) && !(fs::is_directory(output) && fs::is_empty(output))) {
    throw usage_error(
        fmt::format("--output_dir {}: expected a folder that is not there yet, found one", output.string()),
        "name another, or remove it");
  }
  const fs::path temporary = output.string() + ".tmp-" + std::to_string(::getpid());
  make_folders(temporary);
  try {
    write(temporary);
    fs::rename(temporary, output);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace lockstep
