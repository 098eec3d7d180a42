#include "lockstep/tasks/new_folder.h"

#include <fstream>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class NewFolder : public InTestFolder {
 protected:
  void SetUp() override { fs::create_directories(folder_ / "out"); }

  static void write_model(const fs::path& dir) {
    fs::create_directories(dir / "assets");
    for (const char* name : {"config.json", "assets/voice", ".hidden"}) std::ofstream(dir / name) << name;
  }
  static ino_t inode_of(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found.st_ino;
  }
};

TEST_F(NewFolder, AnEmptyOneThatIsThereStaysItself) {  // as one must where a disk is mounted
  const ino_t before = inode_of(folder_ / "out");
  write_new_folder(folder_ / "out", write_model);
  EXPECT_EQ(inode_of(folder_ / "out"), before);
  for (const char* name : {"config.json", "assets/voice", ".hidden"}) EXPECT_TRUE(fs::exists(folder_ / "out" / name));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out"), fs::directory_iterator()), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(NewFolder, NothingIsLeftOfOneThatFails) {
  const auto fails = [](const fs::path& dir) {
    write_model(dir);
    throw std::runtime_error("half of it");
  };
  EXPECT_THROW(write_new_folder(folder_ / "out", fails), std::runtime_error);
  EXPECT_TRUE(fs::is_empty(folder_ / "out"));
  EXPECT_THROW(write_new_folder(folder_ / "other", fails), std::runtime_error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(NewFolder, OneThatHoldsSomethingIsRefusedByIt) {
  write_new_folder(folder_ / "new", write_model);
  fs::remove_all(folder_ / "new" / "assets");
  fs::remove(folder_ / "new" / ".hidden");
  try {
    write_new_folder(folder_ / "new", write_model);
    ADD_FAILURE() << "it was written over";
  } catch (const UserError& error) {
    EXPECT_NE(error.message().find("found one with config.json"), std::string::npos) << error.message();
  }
}

TEST_F(NewFolder, WhatAnotherHasPutThereMeanwhileStays) {
  const auto beside_another = [&](const fs::path& dir) {
    write_model(dir);
    fs::create_directories(folder_ / "out" / "assets");
    std::ofstream(folder_ / "out" / "assets" / "theirs") << "theirs";
  };
  EXPECT_THROW(write_new_folder(folder_ / "out", beside_another), UserError);
  EXPECT_TRUE(fs::exists(folder_ / "out" / "assets" / "theirs"));
  EXPECT_FALSE(fs::exists(folder_ / "out" / "config.json"));
}

}  // namespace
}  // namespace lockstep
