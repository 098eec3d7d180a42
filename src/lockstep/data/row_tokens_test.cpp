#include "lockstep/data/row_tokens.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Sample read(const char* text) { return sample_from_row(Json::parse(text), "tokens.jsonl:3", "."); }

TEST(RowTokens, LabelsDefaultToTheTokensThemselves) {
  const Sample sample = read(R"({"input_ids": [5, 6, 7], "group": "g"})");
  EXPECT_EQ(sample.input_ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(sample.labels, sample.input_ids);
  EXPECT_EQ(sample.group, "g");
}

TEST(RowTokens, CutsAsAsked) {
  const Sample sample = read(R"({"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4]})");
  EXPECT_EQ(token_row_features(sample, {.max_length = 3, .truncation = Truncation::kLeft}).labels,
            (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(token_row_features(sample, {.max_length = 3, .truncation = Truncation::kRight}).input_ids,
            (std::vector<int32_t>{1, 2, 3}));
  EXPECT_THROW(token_row_features(sample, {.max_length = 3}), UserError);
}

TEST(RowTokens, TheModelsPositionsAreTheLimitWhereNoneIsAskedFor) {
  const Sample sample = read(R"({"input_ids": [1, 2, 3, 4]})");
  EXPECT_EQ(token_row_features(sample, {.max_positions = 4}).input_ids.size(), 4);
  EXPECT_EQ(token_row_features(sample, {.truncation = Truncation::kRight, .max_positions = 3}).input_ids.size(), 3);
  EXPECT_EQ(token_row_features(sample, {.max_length = 5, .max_positions = 3}).input_ids.size(), 4);
  try {
    (void)token_row_features(sample, {.max_positions = 3});
    FAIL() << "expected an error";
  } catch (const UserError& error) {
    EXPECT_NE(error.message().find("4 tokens, the model was made for 3"), std::string::npos) << error.message();
  }
}

TEST(RowTokens, NamesRowFieldAndWhatWasFound) {
  for (const char* bad : {R"({"input_ids": []})", R"({"input_ids": [1, "a"]})", R"({"input_ids": [-1]})",
                          R"({"input_ids": [1, 2], "labels": [1]})", R"({"input_ids": [1], "images": ["a.png"]})"}) {
    try {
      read(bad);
      FAIL() << bad;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kData);
      EXPECT_NE(std::string(e.what()).find("tokens.jsonl:3"), std::string::npos) << e.what();
    }
  }
}

TEST(RowTokens, RefusesSpeechWhoseAnswerNobodyKnows) {
  EXPECT_EQ(read(R"({"input_ids": [1, 2], "speech": null})").speech, std::nullopt);
  try {
    read(R"({"input_ids": [1, 2], "speech": {"speaker": "Chelsie", "codes": [17]}})");
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_NE(e.message().find("tokens.jsonl:3: field \"speech\": expected none beside input_ids"), std::string::npos)
        << e.message();
  }
}

}  // namespace
}  // namespace lockstep
