#include "lockstep/base/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {

const char* found_for_folder(const std::filesystem::path& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return "a folder";
  if (std::filesystem::is_regular_file(path, unknown)) return "a file";
  return std::filesystem::exists(path, unknown) ? "something else" : "no such folder";
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    throw checkpoint_error(fmt::format("{}: cannot be opened ({})", path.string(), why));
  }
  size_ = static_cast<size_t>(info.st_size);
  void* map = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (map == MAP_FAILED) {
    throw checkpoint_error(
        fmt::format("{}: {} bytes cannot be mapped ({})", path.string(), size_, std::strerror(errno)));
  }
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::forget(size_t offset, size_t length) const {
  // The kernel maps what lies around a page that is read, so that neighbours are there again: 64 KiB, and since Linux 6.18
  // the whole piece of the page cache, of up to 2 MiB. They come back when needed.
  constexpr uintptr_t kMappedAround = uintptr_t{2} << 20;
  const auto base = reinterpret_cast<uintptr_t>(data_), last = base + size_;
  const uintptr_t from = base + std::min(offset, size_), to = from + std::min(length, last - from);
  const uintptr_t begin = std::max(base, from / kMappedAround * kMappedAround);
  const uintptr_t end = std::min(last, (to + kMappedAround - 1) / kMappedAround * kMappedAround);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace lockstep
