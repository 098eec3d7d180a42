#include "lockstep/base/mapped_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class MappedFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path written(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("lockstep_mapped_" + std::to_string(getpid()));
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Of the map's own pages, in bytes; the process's sum is not exact while it runs, and holds libraries too.
int64_t resident_of(const MappedFile& file) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(file.bytes().data()) << '-';
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(begin.str())) continue;
  while (std::getline(maps, line)) {
    if (line.starts_with("Rss:")) return std::stoll(line.substr(4)) << 10;
  }
  return 0;
}

TEST_F(MappedFiles, ShowsTheBytes) {
  const MappedFile file(written("a", std::string("one\0two", 7)));
  EXPECT_EQ(text_of(file), std::string("one\0two", 7));
  EXPECT_EQ(file.path(), folder_ / "a");
}

TEST_F(MappedFiles, AnEmptyFileHasNoBytes) {
  const MappedFile file(written("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.forget(0, 4096);
}

TEST_F(MappedFiles, MovingKeepsTheMapAlive) {
  MappedFile first(written("a", "first"));
  MappedFile moved(std::move(first));
  EXPECT_EQ(text_of(moved), "first");
  moved = MappedFile(written("b", "second"));
  EXPECT_EQ(text_of(moved), "second");
  EXPECT_EQ(moved.path(), folder_ / "b");
}

TEST_F(MappedFiles, WhatWasForgottenIsReadAgain) {
  std::string bytes(5 * 4096 + 123, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  const MappedFile file(written("a", bytes));
  EXPECT_EQ(text_of(file), bytes);
  file.forget(100, 3 * 4096);
  file.forget(4 * 4096, 1 << 20);
  file.forget(1 << 20, 4096);
  EXPECT_EQ(text_of(file), bytes);
}

TEST_F(MappedFiles, WhatWasForgottenLeavesMemoryWithItsNeighbours) {
  const std::string bytes(size_t{4} << 20, 'x');
  const MappedFile file(written("a", bytes));
  constexpr size_t kStretch = 5000;  // ends within a page
  EXPECT_EQ(static_cast<char>(file.bytes()[kStretch]), 'x');
  ASSERT_GT(resident_of(file), 0) << "it was read: expected Rss of its map in /proc/self/smaps";
  for (size_t at = 0; at + kStretch <= bytes.size(); at += kStretch) {
    EXPECT_EQ(static_cast<char>(file.bytes()[at + kStretch - 1]), 'x');
    file.forget(at, kStretch);
  }
  EXPECT_LE(resident_of(file), int64_t{512} << 10);
}

/// As matrices that are quantised are read, of a file that comes from the disk in large pieces; where the kernel maps no more
/// than 64 KiB around, this cannot fail.
TEST_F(MappedFiles, LargePiecesOfThePageCacheLeaveMemoryToo) {
  const fs::path path = written("a", std::string(size_t{48} << 20, 'x'));
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::fsync(fd), 0);
  ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(fd);
  const MappedFile file(path);
  constexpr size_t kStretch = size_t{1} << 20, kFirst = 43 * 4096;
  for (size_t at = kFirst; at + kStretch <= file.bytes().size(); at += kStretch) {
    const std::span<const std::byte> part = file.bytes().subspan(at, kStretch);
    ASSERT_TRUE(std::ranges::all_of(part, [](std::byte one) { return one == std::byte{'x'}; }));
    file.forget(at, kStretch);
  }
  EXPECT_LE(resident_of(file), int64_t{512} << 10);
}

TEST_F(MappedFiles, AMapOutlivesTheNameOfItsFile) {
  const auto path = written("a", "still here");
  const MappedFile file(path);
  fs::remove(path);
  EXPECT_EQ(text_of(file), "still here");
}

TEST_F(MappedFiles, WhatCannotBeOpenedIsNamed) {
  try {
    const MappedFile file(folder_ / "none.safetensors");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_EQ(error.message(),
              (folder_ / "none.safetensors").string() + ": cannot be opened (No such file or directory)");
  }
  EXPECT_THROW(MappedFile{folder_}, UserError);
}

}  // namespace
}  // namespace lockstep
