#include "lockstep/tasks/run_folder.h"

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

}  // namespace
}  // namespace lockstep
