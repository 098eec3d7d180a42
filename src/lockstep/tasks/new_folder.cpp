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

/// What a folder holds beside `own`, or ""; a disk of ext4 has a lost+found of its own.
std::string first_in(const fs::path& dir, const std::string& own) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name != own && name != "lost+found") return name;
  }
  return "";
}

UserError not_new(const fs::path& output, const std::string& found) {
  return usage_error(fmt::format("--output_dir {}: expected a folder that is not there yet, or an empty one, found {}",
                                 output.string(), found),
                     "name another, or remove it");
}

void require_new(const fs::path& output, const std::string& own = "") {
  if (!fs::exists(output)) return;
  if (!fs::is_directory(output)) throw not_new(output, "a file");
  if (const std::string inside = first_in(output, own); !inside.empty()) throw not_new(output, "one with " + inside);
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
    require_new(place, own);  // writing takes long, and another may have come
    for (const auto& name : names_in(temporary)) {
      const std::lock_guard lock(mutex);
      if (fs::exists(place / name)) throw not_new(place, "one with " + name.string());
      fs::rename(temporary / name, place / name);
      moved.push_back(place / name);
    }
    fs::remove(temporary);
  } catch (...) {
    remove();
    throw;
  }
}

}  // namespace lockstep
