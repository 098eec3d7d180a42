#include "lockstep/base/file_lock.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "lockstep/base/machine.h"

namespace lockstep {

FileLock::FileLock(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) return;
  held_ = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  if (held_) {
    const std::string me = fmt::format("process {} on {}", ::getpid(), host_name());
    // Only words for whoever comes second.
    if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, me.data(), me.size(), 0) < 0) return;
  } else {
    std::array<char, 256> words{};
    const auto count = ::pread(fd_, words.data(), words.size(), 0);
    owner_ = count > 0 ? std::string(words.data(), static_cast<size_t>(count)) : "another process";
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace lockstep
