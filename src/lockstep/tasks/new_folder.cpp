#include "lockstep/tasks/new_folder.h"

#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/new_file.h"

namespace lockstep {
namespace fs = std::filesystem;

void write_new_folder(const fs::path& output, const std::function<void(const fs::path& dir)>& write) {
  if (fs::exists(output) && !(fs::is_directory(output) && fs::is_empty(output))) {
    throw usage_error(
        fmt::format("--output_dir {}: expected a folder that is not there yet, found one", output.string()),
        "name another, or remove it");
  }
  // Beside the folder itself: what ends in "/", or is a link, would have it inside.
  const fs::path place = fs::weakly_canonical(fs::absolute(output / "").lexically_normal().parent_path());
  const fs::path temporary = place.string() + ".tmp-" + std::to_string(::getpid());
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  };
  const UndoneWhenInterrupted undone(remove);
  make_folders(temporary);
  try {
    write(temporary);
    fs::rename(temporary, place);
  } catch (...) {
    remove();
    throw;
  }
}

}  // namespace lockstep
