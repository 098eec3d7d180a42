#include "lockstep/guard/settings.h"

#include <gtest/gtest.h>

#include "lockstep/guard/recorder.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

bool any(std::string_view) { return true; }

TEST(Settings, AreReadFromWhatTheRankToldOfItself) {
  Recorder recorder;
  recorder.add_fact("command", "sft");
  recorder.add_setting("--model", shell_word("/data/my model"));
  recorder.add_setting("--json", "");
  RankReport report;
  report.facts = recorder.board().facts.read_any().view();
  const Settings found = settings_of(report);
  EXPECT_EQ(found.command, "sft");
  EXPECT_EQ(found.given, (std::map<std::string, std::string>{{"--json", ""}, {"--model", "'/data/my model'"}}));
  for (const char* garbage : {"", "{", "[1]", R"({"command":7,"settings":[]})", R"({"settings":{"--a":1}})"}) {
    report.facts = garbage;
    EXPECT_TRUE(settings_of(report).given.empty() && settings_of(report).command.empty()) << garbage;
  }
}

TEST(Settings, GiveWayWhereABoardHasNoRoomForThem) {
  Recorder recorder;
  recorder.add_fact("plan", "ab12");
  recorder.add_setting("--model", std::string(5000, 'x'));
  EXPECT_EQ(recorder.board().facts.read_any().view(), R"({"plan":"ab12"})");
}

TEST(Settings, AWordIsQuotedWhereAShellWouldSplitIt) {
  EXPECT_EQ(shell_word("/a/b-1.0"), "/a/b-1.0");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Settings, NameWhatOneRankIsStartedWithInstead) {
  const RankSet odd({1}), usual({0, 2});
  const Settings others{.command = "sft", .given = {{"--seed", "1"}, {"WORLD_SIZE", "3"}}};
  EXPECT_EQ(start_alike(odd, {.given = {{"--seed", "2"}, {"WORLD_SIZE", "3"}}}, usual, others, any),
            "start rank 1 with --seed 1, as ranks 0, 2");
  EXPECT_EQ(start_alike(odd, {.given = {{"--json", ""}, {"--seed", "1"}, {"WORLD_SIZE", "4"}}}, usual, others, any),
            "start rank 1 with WORLD_SIZE=3 and without --json, as ranks 0, 2");
  EXPECT_EQ(start_alike(odd, others, usual, others, any), "");
  EXPECT_EQ(start_alike(odd, {}, usual, others, [](std::string_view name) { return name == "--model"; }), "");
}

TEST(Settings, AJobThatIsOnlyWatchedIsToldNothingOfLockstepsFlags) {
  const Settings watched{.given = {{kWatchedFlag, "1"}}}, own{.command = "sft"};
  EXPECT_EQ(world_size_flags(watched), "--nproc_per_node, --nnodes");
  EXPECT_EQ(world_size_flags(own), "--nproc, --nnodes");
  EXPECT_EQ(need_less_memory(watched).find("lockstep"), std::string::npos) << need_less_memory(watched);
  EXPECT_NE(need_less_memory(own).find("`lockstep plan`"), std::string::npos);
}

TEST(Settings, GoOnAsTheCommandCan) {
  EXPECT_NE(go_on({.command = "sft"}).find("--resume_from_checkpoint auto"), std::string::npos);
  for (const char* verb : {"embed", "infer", "eval"}) {
    EXPECT_EQ(go_on({.command = verb}).find("--"), std::string::npos) << verb;  // they have no such flag
  }
}

TEST(Settings, NeedLessMemoryByFlagsThatTheJobDoesNotHaveYet) {
  const auto less = [](std::map<std::string, std::string> given) {
    return need_less_memory({.command = "sft", .given = std::move(given)});
  };
  EXPECT_TRUE(less({}).starts_with("--deepspeed zero3 needs less memory"));
  EXPECT_TRUE(less({{"--per_device_train_batch_size", "8"}}).starts_with("--per_device_train_batch_size 4, or "));
  for (const char* word : {"false", "auto"}) {
    EXPECT_TRUE(less({{"--deepspeed", "zero3"}, {"--gradient_checkpointing", word}})
                    .starts_with("--gradient_checkpointing true needs"))
        << word;
  }
  const std::string nothing_left = less({{"--deepspeed", "zero3"}});
  EXPECT_EQ(nothing_left.find("--"), nothing_left.find("--resume_from_checkpoint"))
      << "the only flag: " << nothing_left;
  EXPECT_TRUE(nothing_left.ends_with(go_on({.command = "sft"}))) << "memory that others took may be there again";
}

}  // namespace
}  // namespace lockstep
