#include "lockstep/doctor/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/doctor/inspect.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const fs::path& configs() {
  static const fs::path folder = fs::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs";
  return folder;
}

const CheckResult* named(const CheckReport& report, const std::string& name) {
  for (const auto& result : report.results()) {
    if (result.name == name) return &result;
  }
  return nullptr;
}

TEST(ExamineCheckpoint, AFolderThatIsNotThereIsOneFailure) {
  CheckReport report;
  const auto parts = examine_checkpoint(std::filesystem::path("no/such/folder"), {}, true, report);
  ASSERT_EQ(report.results().size(), 1U);
  EXPECT_EQ(report.code(), ExitCode::kCheckpoint);
  EXPECT_FALSE(parts.whole());
}

TEST(ExamineCheckpoint, AConfigAloneIsReadAndWhatIsMissingIsToldPartByPart) {
  CheckReport report;
  const auto parts = examine_checkpoint(configs() / "Qwen2.5-7B", {}, true, report);
  ASSERT_NE(named(report, "config"), nullptr);
  EXPECT_EQ(named(report, "config")->level, Level::kOk);
  EXPECT_EQ(named(report, "config")->text, "qwen2: 28 layers, 152064 tokens");
  EXPECT_EQ(named(report, "files")->level, Level::kFailure);
  EXPECT_EQ(named(report, "tokenizer")->level, Level::kFailure);
  EXPECT_EQ(named(report, "tensors"), nullptr);  // there is nothing to compare
  EXPECT_EQ(named(report, "chat template")->level, Level::kWarning);
  EXPECT_EQ(report.code(), ExitCode::kCheckpoint);
  EXPECT_TRUE(parts.model.has_value());
}

TEST(ExamineCheckpoint, AComponentThatTheModelDoesNotHaveCannotBeLeftOut) {
  CheckReport report;
  examine_checkpoint(configs() / "Qwen2.5-7B", {Component::kVision}, true, report);
  EXPECT_EQ(named(report, "config")->code, ExitCode::kUsage);
}

TEST(ExamineCheckpoint, AFamilyThatBringsItsChatFormatNeedsNone) {
  const fs::path odd = fs::path(LOCKSTEP_FIXTURES) / "oracle" / "odd";
  for (const auto& place :
       {ModelPlace(odd / "omnilmm" / "checkpoint"), ModelPlace(odd / "llava" / "checkpoint_original")}) {
    CheckReport report;
    examine_checkpoint(place, {}, true, report);
    EXPECT_EQ(named(report, "chat template")->level, Level::kOk) << named(report, "chat template")->text;
    EXPECT_EQ(named(report, "chat template")->text, "none in the folder: the family brings its own");
    const Json notices = inspect_checkpoint(place)["notices"];
    EXPECT_NE(std::ranges::find(notices, "no chat template in the folder: the family brings its own"), notices.end())
        << notices.dump();
  }
}

TEST(JudgeVocabulary, MoreTokensThanRowsCannotBeLookedUp) {
  EXPECT_EQ(judge_vocabulary(100, 128).level, Level::kOk);  // embeddings are often padded
  const CheckResult result = judge_vocabulary(129, 128);
  EXPECT_EQ(result.level, Level::kFailure);
  EXPECT_EQ(result.text, "129 tokens, but the embedding has only 128 rows: ids from 128 on cannot be looked up");
}

}  // namespace
}  // namespace lockstep
