#include "lockstep/doctor/data.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class DataFile : public testing::Test {
 protected:
  DataFile() { fs::create_directories(folder_); }
  ~DataFile() override { fs::remove_all(folder_); }

  std::string write(const std::string& text) {
    write_text(folder_ / "rows.jsonl", text);
    return (folder_ / "rows.jsonl").string();
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(DataFile, RowsAreSpreadOverTheWholeFile) {
  std::string text;
  for (int i = 0; i < 999; ++i) text += "{\"query\": \"say\", \"response\": \"yes\"}\n";
  text += R"({"query": "<image>what?", "response": "no", "images": ["not_there.png"]})"
          "\n";
  int64_t told = 0;
  const DataFacts facts = data_facts(write(text), {.progress = [&](int64_t done, int64_t total) {
                                       told = done;
                                       EXPECT_EQ(total, 64);
                                     }});
  EXPECT_EQ(told, 64);
  EXPECT_EQ(facts.rows, 1000);
  EXPECT_EQ(facts.looked, 64);
  EXPECT_EQ(facts.unusable, 1);
  EXPECT_TRUE(contains(facts.first_unusable, "not_there.png")) << facts.first_unusable;
  EXPECT_TRUE(contains(facts.first_unusable, "rows.jsonl:1000")) << facts.first_unusable;
  EXPECT_EQ(judge_data(facts).level, Level::kWarning);
}

TEST_F(DataFile, BrokenLinesAreCountedWithTheFirst) {
  const DataFacts facts = data_facts(write("{\"query\": \"say\", \"response\": \"yes\"}\n{\"query\": \nnot json\n"),
                                     {.dataset = {.strict = true}});
  EXPECT_EQ(facts.rows, 1);
  EXPECT_EQ(facts.broken, 2);
  const CheckResult strict = judge_data(facts);
  EXPECT_EQ(strict.level, Level::kFailure);
  EXPECT_EQ(strict.code, ExitCode::kData);
  EXPECT_TRUE(contains(strict.text, "2 broken (the first: ")) << strict.text;
  EXPECT_TRUE(contains(strict.text, "rows.jsonl:2")) << strict.text;
}

TEST_F(DataFile, AFileThatIsNotThereThrows) {
  EXPECT_THROW(data_facts((folder_ / "none.jsonl").string(), {}), UserError);
}

TEST_F(DataFile, AnEmptyFileIsAFailure) { EXPECT_EQ(judge_data(data_facts(write(""), {})).code, ExitCode::kData); }

TEST(JudgeData, NoUsableRowIsAFailureAlsoWithoutStrict) {
  const CheckResult result = judge_data({.file = "a", .rows = 9, .looked = 9, .unusable = 9, .first_unusable = "why"});
  EXPECT_EQ(result.level, Level::kFailure);
  EXPECT_TRUE(contains(result.text, "of 9 looked at 0 can be used (the first that cannot: why)")) << result.text;
}

TEST(JudgeData, RowsLongerThanTheModelAreAWarning) {
  DataFacts facts{.file = "a",
                  .rows = 9,
                  .looked = 9,
                  .tokens_made = true,
                  .longest_tokens = 5000,
                  .longest_where = "a:3",
                  .max_positions = 4096};
  EXPECT_EQ(judge_data(facts).level, Level::kWarning);
  EXPECT_TRUE(contains(judge_data(facts).cure, "--max_length 4096"));
  facts.max_positions = 8192;
  EXPECT_EQ(judge_data(facts).level, Level::kOk);
  EXPECT_TRUE(contains(judge_data(facts).text, "longest 5000 tokens (a:3)"));
}

}  // namespace
}  // namespace lockstep
