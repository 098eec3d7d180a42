#include "lockstep/tasks/new_folder.h"

#include <fstream>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class NewFolder : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("new_folder_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "out");
  }
  void TearDown() override { fs::remove_all(dir_); }

  static void write_model(const fs::path& dir) {
    fs::create_directories(dir / "assets");
    for (const char* name : {"config.json", "assets/voice", ".hidden"}) std::ofstream(dir / name) << name;
  }
  static ino_t inode_of(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found.st_ino;
  }
  fs::path dir_;
};

TEST_F(NewFolder, AnEmptyOneThatIsThereStaysItself) {  // as one must where a disk is mounted
  const ino_t before = inode_of(dir_ / "out");
  write_new_folder(dir_ / "out", write_model);
  EXPECT_EQ(inode_of(dir_ / "out"), before);
  for (const char* name : {"config.json", "assets/voice", ".hidden"}) EXPECT_TRUE(fs::exists(dir_ / "out" / name));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "out"), fs::directory_iterator()), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(NewFolder, NothingIsLeftOfOneThatFails) {
  const auto fails = [](const fs::path& dir) {
    write_model(dir);
    throw std::runtime_error("half of it");
  };
  EXPECT_THROW(write_new_folder(dir_ / "out", fails), std::runtime_error);
  EXPECT_TRUE(fs::is_empty(dir_ / "out"));
  EXPECT_THROW(write_new_folder(dir_ / "other", fails), std::runtime_error);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(NewFolder, OneThatHoldsSomethingIsRefusedByIt) {
  write_new_folder(dir_ / "new", write_model);
  fs::remove_all(dir_ / "new" / "assets");
  fs::remove(dir_ / "new" / ".hidden");
  try {
    write_new_folder(dir_ / "new", write_model);
    ADD_FAILURE() << "it was written over";
  } catch (const UserError& error) {
    EXPECT_NE(error.message().find("found one with config.json"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace lockstep
