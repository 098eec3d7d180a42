#include "lockstep/tasks/new_folder.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/new_file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

void require_new(const fs::path& output) {
  if (!fs::exists(output)) return;
  const bool folder = fs::is_directory(output);
  if (folder && fs::is_empty(output)) return;
  const std::string found =
      folder ? "one with " + fs::directory_iterator(output)->path().filename().string() : "a file";
  throw usage_error(fmt::format("--output_dir {}: expected a folder that is not there yet, or an empty one, found {}",
                                output.string(), found),
                    "name another, or remove it");
}

/// What makes a folder a model stands last: nobody finds half of one.
std::vector<fs::path> names_in(const fs::path& dir) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::ranges::sort(names, {}, [](const fs::path& name) { return std::pair(name == "config.json", name); });
  return names;
}

}  // namespace

void write_new_folder(const fs::path& output, const std::function<void(const fs::path& dir)>& write) {
  require_new(output);
  // Beside the folder itself: what ends in "/", or is a link, would have it inside. One that is there stays: a disk may be mounted
  // at it, and nothing can be renamed onto that.
  const fs::path place = fs::weakly_canonical(fs::absolute(output / "").lexically_normal().parent_path());
  const bool stays = fs::exists(place);
  const std::string own = ".tmp-" + std::to_string(::getpid());
  const fs::path temporary = stays ? place / own : fs::path(place.string() + own);
  std::mutex mutex;  // of what has left `temporary`: an interrupt takes it back in a thread of its own
  std::vector<fs::path> moved;
  const auto remove = [&] {
    const std::lock_guard lock(mutex);
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    for (const auto& path : moved) fs::remove_all(path, ignored);
  };
  const UndoneWhenInterrupted undone(remove);
  make_folders(temporary);
  try {
    write(temporary);
    if (!stays) return fs::rename(temporary, place);
    for (const auto& name : names_in(temporary)) {
      const std::lock_guard lock(mutex);
      moved.push_back(place / name);
      fs::rename(temporary / name, place / name);
    }
    fs::remove(temporary);
  } catch (...) {
    remove();
    throw;
  }
}

}  // namespace lockstep
