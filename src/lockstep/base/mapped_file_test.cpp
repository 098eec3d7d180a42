#include "lockstep/base/mapped_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process_memory.h"

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
  const int64_t before = read_memory().file_bytes;
  ASSERT_GT(before, 0) << "this program itself is a mapped file: expected RssFile in /proc/self/status (Linux 4.5)";
  constexpr size_t kStretch = 5000;  // ends within a page
  for (size_t at = 0; at + kStretch <= bytes.size(); at += kStretch) {
    EXPECT_EQ(static_cast<char>(file.bytes()[at + kStretch - 1]), 'x');
    file.forget(at, kStretch);
  }
  EXPECT_LE(read_memory().file_bytes - before, int64_t{512} << 10);
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
