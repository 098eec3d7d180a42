#include "lockstep/tasks/run_folder.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {

using RunFolders = InTestFolder;

TEST_F(RunFolders, AreGoneOnWithByPythonsWordsToo) {
  const auto with = [&](const std::string& resume) {
    return choose_run_folder({.output_dir = (folder_ / "out").string(),
                              .model = "m",
                              .resume_from_checkpoint = resume,
                              .add_version = false});
  };
  for (const char* word : {"true", "True"}) EXPECT_THROW(with(word), UserError) << word << ": there is none";
  for (const char* word : {"", "false", "False", "auto"}) EXPECT_EQ(with(word).dir, folder_ / "out") << word;
}

TEST_F(RunFolders, AreWholeWithoutTheirLinks) {
  namespace fs = std::filesystem;
  fs::create_directories(folder_ / "checkpoint-1");
  EXPECT_TRUE(link_checkpoints(folder_, folder_ / "checkpoint-1", {}).empty());
  EXPECT_EQ(fs::read_symlink(folder_ / "last"), "checkpoint-1");
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder_ / "best")));
  EXPECT_NO_THROW(require_place_for_links(folder_));
  fs::create_directories(folder_ / "best.tmp" / "in the way");
  const auto told = link_checkpoints(folder_, folder_ / "checkpoint-1", folder_ / "checkpoint-1");
  ASSERT_EQ(told.size(), 1);
  EXPECT_NE(told[0].find("best cannot be made"), std::string::npos) << told[0];
  fs::create_directories(folder_ / "best");
  EXPECT_THROW(require_place_for_links(folder_), UserError) << "before anything is trained";
}

}  // namespace
}  // namespace lockstep
