// Keeps a file, and what it stands for, to one process at a time; the system lets go of it when that process ends,
// however it ends.
//
// Example:
//   FileLock lock(dir / ".lock");
//   if (!lock.held()) throw usage_error(fmt::format("{} is in use by {}", dir.string(), lock.owner()));
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

class FileLock {
 public:
  /// Tries once and does not wait. The file is made where it is not there, and stays. On a disk that knows no locks, and
  /// where no file can be made, it counts as held: whoever writes there next gets the error.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return held_; }
  const std::string& owner() const { return owner_; }  // when it is not held: "process 4711 on node3"

 private:
  int fd_ = -1;
  bool held_ = true;
  std::string owner_;
};

}  // namespace lockstep
