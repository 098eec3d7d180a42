#include "lockstep/state/checkpoint_names.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_manifest.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kTemporary = ".tmp-";
constexpr const char* kReplaced = "replaced";  // after a process's number: what replaces it is the newer one
constexpr const char* kDoomed = "pruned";

/// In the order of their names.
std::vector<fs::path> temporaries_in(const fs::path& dir) {
  std::vector<fs::path> found;
  if (!fs::is_directory(dir)) return found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.find(kTemporary) != std::string::npos) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

/// That a temporary one is to have.
fs::path name_of(const fs::path& temporary) {
  const std::string name = temporary.string();
  return name.substr(0, name.rfind(kTemporary));
}

std::string stays(const fs::path& path, const std::error_code& why) {
  return fmt::format("{} cannot be removed ({}): it keeps its place on the disk until you remove it", path.string(),
                     why.message());
}

/// All that can go: fs::remove_all ends at the first that cannot, before files that take most of the room.
void remove_what_goes(const fs::path& path, std::error_code& first) {
  std::error_code failed;
  std::vector<fs::path> inside;
  if (fs::is_directory(fs::symlink_status(path, failed))) {
    for (auto at = fs::directory_iterator(path, failed); at != fs::directory_iterator(); at.increment(failed)) {
      inside.push_back(at->path());
    }
  }
  for (const auto& one : inside) remove_what_goes(one, first);
  fs::remove(path, failed);
  if (failed && !first) first = failed;
}

std::string remove_folder(const fs::path& dir) {
  std::error_code failed;
  remove_what_goes(dir, failed);
  return failed ? stays(dir, failed) : "";
}

void take_name(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (!failed) return;
  throw data_error(
      fmt::format("{}: cannot be renamed to {}: {}", from.string(), to.filename().string(), failed.message()),
      "it stays as it is: the checkpoint is whole, and can be renamed by hand");
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  if (!fs::is_directory(dir)) return found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const auto step = checkpoint_step(entry.path());
    if (step && entry.is_directory()) found.emplace_back(*step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + std::strlen(kPrefix);
  const char* end = name.data() + name.size();
  int64_t step = 0;
  const auto parsed = std::from_chars(begin, end, step);
  if (begin == end || parsed.ptr != end || parsed.ec != std::errc{}) return std::nullopt;
  return step;
}

fs::path temporary_name(const fs::path& checkpoint, const std::string& suffix) {
  const std::string plain = checkpoint.string() + kTemporary + suffix;
  std::string name = plain;
  std::error_code failed;
  for (int i = 2; fs::exists(fs::symlink_status(name, failed)); ++i) name = fmt::format("{}-{}", plain, i);
  return name;
}

std::string publish_checkpoint(const fs::path& temporary, const fs::path& checkpoint) {
  fs::path older;
  if (!fs::exists(checkpoint)) {
    take_name(temporary, checkpoint);
  } else if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, checkpoint.c_str(), RENAME_EXCHANGE) == 0) {
    older = temporary;
  } else {  // NFS knows no exchange, nor do some of FUSE
    older = take_name_in_turn(temporary, checkpoint);
  }
  sync_folder(checkpoint.parent_path());
  return older.empty() ? "" : remove_checkpoint(older);
}

fs::path take_name_in_turn(const fs::path& temporary, const fs::path& checkpoint) {
  fs::path older = temporary_name(checkpoint, kReplaced);
  take_name(checkpoint, older);
  try {
    take_name(temporary, checkpoint);
  } catch (...) {
    std::error_code ignored;
    fs::rename(older, checkpoint, ignored);
    throw;
  }
  return older;
}

std::string remove_checkpoint(const fs::path& checkpoint) {
  std::error_code failed;
  const fs::path doomed = temporary_name(checkpoint, kDoomed);
  fs::rename(checkpoint, doomed, failed);
  return failed ? stays(checkpoint, failed) : remove_folder(doomed);
}

std::vector<fs::path> unnamed_checkpoints(const fs::path& dir) {
  std::vector<fs::path> found = temporaries_in(dir);
  std::erase_if(found, [](const fs::path& path) {
    const bool doomed = path.filename().string().find(std::string(kTemporary) + kDoomed) != std::string::npos;
    const fs::path name = name_of(path);
    return doomed || !checkpoint_step(name) || fs::exists(name) || !has_all_bytes(path);
  });
  return found;
}

void name_checkpoints(const fs::path& dir) {
  for (const auto& path : unnamed_checkpoints(dir)) {
    std::error_code ignored;
    if (!fs::exists(name_of(path))) fs::rename(path, name_of(path), ignored);
  }
}

std::vector<std::string> remove_leftovers(const fs::path& dir) {
  name_checkpoints(dir);
  std::vector<std::string> left;
  for (const auto& path : temporaries_in(dir)) {
    std::string told = remove_folder(path);
    if (!told.empty()) left.push_back(std::move(told));
  }
  return left;
}

}  // namespace lockstep
