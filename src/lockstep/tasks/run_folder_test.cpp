#include "lockstep/tasks/run_folder.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/trainer_state.h"

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

TEST_F(RunFolders, OfRanksThatAreStartedAgainAreTheirOwn) {
  const auto save = [&](const std::string& run, int64_t step, const std::string& launch) {
    const std::filesystem::path dir = folder_ / "out" / run / ("checkpoint-" + std::to_string(step));
    std::filesystem::create_directories(dir);
    TrainerState state;
    state.global_step = step;
    state.launch_id = launch;
    write_json(dir / "trainer_state.json", to_json(state));
    seal_folder(dir, step, describe_folder(dir));
    return dir;
  };
  const auto old = save("v0-20260101-000000", 500, "earlier");
  const auto chosen = [&](const std::string& resume) {
    return choose_run_folder({.output_dir = (folder_ / "out").string(),
                              .model = "m",
                              .resume_from_checkpoint = resume,
                              .launch_id = "this"})
        .checkpoint;
  };
  EXPECT_EQ(chosen(""), "") << "nothing was saved: it begins again, and does not take an older run for its own";
  EXPECT_EQ(chosen(old.string()), old);
  save("v1-20260102-000000", 20, "this");
  const auto own = save("v1-20260102-000000", 30, "this");
  for (const std::string& resume : {std::string(), std::string("false"), std::string("auto"), old.string()}) {
    EXPECT_EQ(chosen(resume), own) << resume;
  }
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
