#include "lockstep/base/new_file.h"

#include <future>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class NewFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  int64_t files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_ = fs::path(testing::TempDir()) / "new_file_test";
};

TEST_F(NewFileTest, GetsItsNameWhenItIsWhole) {
  write_text(folder_ / "a", "before");
  NewFile file(folder_ / "a");
  file.line("one");
  file.write("two");
  EXPECT_EQ(read_text(folder_ / "a"), "before");
  file.finish();
  EXPECT_EQ(read_text(folder_ / "a"), "one\ntwo");
  EXPECT_EQ(files(), 1);
}

TEST_F(NewFileTest, WhatIsGivenUpLeavesNothing) {
  {
    NewFile file(folder_ / "a");
    file.line("one");
    EXPECT_EQ(files(), 1);
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(NewFileTest, ALinkStaysOneAndAPipeIsWrittenInto) {
  fs::create_directories(folder_ / "b");
  write_text(folder_ / "b" / "real", "before");
  for (const auto& [link, target] : {std::pair{"link", "b/real"}, {"dangling", "b/new"}}) {
    fs::create_symlink(target, folder_ / link);
    NewFile file(folder_ / link);
    file.write("after");
    file.finish();
    EXPECT_TRUE(fs::is_symlink(folder_ / link));
    EXPECT_EQ(read_text(folder_ / target), "after");
  }
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return read_text(folder_ / "pipe"); });
  NewFile file(folder_ / "pipe");
  file.line("through");
  file.finish();
  EXPECT_EQ(read.get(), "through\n");
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
}

/// docs/errors.md: an output that takes no more, whichever verb writes it.
TEST_F(NewFileTest, AnOutputThatCannotBeWrittenIsOfOneKind) {
  write_text(folder_ / "file", "");
  const auto code_of = [](const auto& work) {
    try {
      work();
    } catch (const UserError& error) {
      EXPECT_NE(error.hint(), "");
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code_of([&] { NewFile file(folder_ / "gone" / "a"); }), ExitCode::kData);
  EXPECT_EQ(code_of([&] {
              fs::create_symlink("/dev/full", folder_ / "full");
              NewFile file(folder_ / "full");
              file.line("x");
              file.finish();
            }),
            ExitCode::kData);
  EXPECT_EQ(code_of([&] { write_text("/dev/full/a", "x"); }), ExitCode::kData);
  EXPECT_EQ(code_of([&] { make_folders(folder_ / "file" / "a"); }), ExitCode::kData);
  make_folders(folder_ / "b" / "c");
  make_folders(folder_ / "b" / "c");
  EXPECT_TRUE(fs::is_directory(folder_ / "b" / "c"));
}

TEST_F(NewFileTest, ARefusalSaysWhatItsUserWantsToBeTold) {
  try {
    NewFile file(folder_ / "gone" / "a", {.code = ExitCode::kData, .cure = "make room"});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_EQ(error.hint(), "make room");
    EXPECT_EQ(error.message(), (folder_ / "gone" / "a").string() + ": cannot be written (No such file or directory)");
  }
}

}  // namespace
}  // namespace lockstep
