// A read-only memory map of a whole file: slices cost no copy, untouched pages cost no memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

/// For messages, where a folder was expected: "no such folder", "a file".
const char* found_for_folder(const std::filesystem::path& path);

class MappedFile {
 public:
  /// Throws UserError(kCheckpoint) naming the path.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that these pages will not be read again soon, so that they leave resident memory.
  void forget(size_t offset, size_t length) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep
