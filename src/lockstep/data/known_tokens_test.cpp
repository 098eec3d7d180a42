#include "lockstep/data/known_tokens.h"

#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/test_processor.h"

namespace lockstep {
namespace {

/// A row as it is given.
class Given final : public test::FeaturesProcessor {
 public:
  explicit Given(Features row) : row_(std::move(row)) {}
  Features train_features(const Sample&, const ProcessOptions&) const override { return row_; }

 private:
  Features row_;
};

std::string refusal(Features row) {
  const auto processor = of_known_tokens(std::make_unique<Given>(std::move(row)), 10);
  Sample sample;
  sample.where = "a.jsonl:3";
  std::string words;
  for (const bool trains : {true, false}) {
    try {
      trains ? processor->train_features(sample, {}) : processor->prompt_features(sample, {});
      EXPECT_EQ(words, "") << "both or none";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      words = error.what();
    }
  }
  return words;
}

TEST(KnownTokens, AreThoseThatTheModelEmbeds) {
  EXPECT_EQ(refusal({.input_ids = {0, 9}, .labels = {-100, 9}}), "");
  EXPECT_NE(
      refusal({.input_ids = {0, 10}}).find("a.jsonl:3: token 2 of the row: expected one of the model's 10, found 10"),
      std::string::npos);
  EXPECT_NE(refusal({.input_ids = {-100}}), "") << "a label that is none is no token";
  EXPECT_NE(refusal({.input_ids = {1, 2}, .labels = {1, 600}}).find("label 2"), std::string::npos);
  EXPECT_NE(refusal({.input_ids = {1, 2}, .labels = {1, -5}}), "");
  EXPECT_NE(refusal({}).find("at least one token"), std::string::npos);
}

/// An error of the tokenizer knows of no row.
class Failing final : public test::FeaturesProcessor {
 public:
  explicit Failing(std::string words) : words_(std::move(words)) {}
  Features train_features(const Sample&, const ProcessOptions&) const override { throw data_error(words_); }

 private:
  std::string words_;
};

TEST(KnownTokens, ARowThatCannotBeProcessedIsNamedOnce) {
  Sample sample;
  sample.where = "a.jsonl:3";
  for (const std::string words : {"tokenizer.json: gave up", "a.jsonl:3: tokenizer.json: gave up"}) {
    const auto processor = of_known_tokens(std::make_unique<Failing>(words), 10);
    for (const bool trains : {true, false}) {
      try {
        trains ? processor->train_features(sample, {}) : processor->prompt_features(sample, {});
        ADD_FAILURE() << words;
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::kData);
        EXPECT_STREQ(error.what(), "a.jsonl:3: tokenizer.json: gave up");
      }
    }
  }
}

TEST(KnownTokens, DoNotCountWhatMediaFill) {
  EXPECT_EQ(refusal({.input_ids = {1, 5000, 2}, .media = {{.places = {1}}}}), "");
  EXPECT_NE(refusal({.input_ids = {1, 5000, 2}, .media = {{.places = {2}}}}), "");
}

}  // namespace
}  // namespace lockstep
