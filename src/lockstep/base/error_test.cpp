#include "lockstep/base/error.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, SaysFramesOuterFirstThenMessageThenHint) {
  UserError error(ExitCode::kData, "row 17: expected a list", "write [\"a.png\"]");
  EXPECT_STREQ(error.what(), "row 17: expected a list; hint: write [\"a.png\"]");
  error.add_frame("reading train.jsonl");
  error.add_frame("rank 1");
  EXPECT_STREQ(error.what(), "rank 1: reading train.jsonl: row 17: expected a list; hint: write [\"a.png\"]");
  EXPECT_EQ(error.frames(), (std::vector<std::string>{"reading train.jsonl", "rank 1"}));
  EXPECT_EQ(error.message(), "row 17: expected a list");
}

TEST(Error, AFrameAddedWhileItFliesIsKept) {
  try {
    try {
      throw checkpoint_error("no such file");
    } catch (Error& error) {
      error.add_frame("loading shard 2 of 4");
      throw;
    }
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "loading shard 2 of 4: no such file");
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
  }
}

TEST(Error, KindsCarryTheirExitCodes) {
  EXPECT_EQ(static_cast<int>(usage_error("x").code()), 2);
  EXPECT_EQ(static_cast<int>(data_error("x").code()), 3);
  EXPECT_EQ(static_cast<int>(checkpoint_error("x").code()), 4);
}

TEST(Error, CheckNamesTheCallersLine) {
  EXPECT_NO_THROW(check(true, "fine"));
  try {
    check(false, "shards overlap");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(error.message().find("error_test.cpp:"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(": shards overlap"), std::string::npos) << error.message();
    EXPECT_EQ(error.code(), ExitCode::kInternal);
  }
}

TEST(NearestName, FindsSlipsOfTheFinger) {
  const std::vector<std::string> flags = {"--model", "--dataset", "--max_length", "--learning_rate", "--lr"};
  EXPECT_EQ(nearest_name("--modle", flags), "--model");
  EXPECT_EQ(nearest_name("--learning-rate", flags), "--learning_rate");
  EXPECT_EQ(nearest_name("--datasets", flags), "--dataset");
  EXPECT_EQ(nearest_name("--something_else", flags), "");
  EXPECT_EQ(nearest_name("--model", {}), "");
}

TEST(NearestName, AShortWordIsNotReplacedAsAWhole) {
  EXPECT_EQ(nearest_name("sf", {"sft", "ab"}), "sft");
  EXPECT_EQ(nearest_name("xy", {"ab"}), "");
  EXPECT_EQ(nearest_name("run", {"sft"}), "");
}

TEST(Errors, AMessageStaysReadableWhateverAFilePutsIntoIt) {
  const std::string flood(300'000, 'x');
  for (const UserError& error : {data_error(flood, flood), checkpoint_error(flood), usage_error(flood)})
    EXPECT_LT(std::string(error.what()).size(), 8'000U);
}

}  // namespace
}  // namespace lockstep
