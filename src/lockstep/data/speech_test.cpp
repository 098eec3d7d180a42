#include "lockstep/data/speech.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/features.h"
#include "lockstep/data/sample.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

SpeechRules rules() {
  return {.speakers = {{"Chelsie", 900}, {"Ethan", 901}},
          .text_end = 910,
          .text_pad = 911,
          .code_mask = 124,
          .code_pad = 120,
          .code_start = 121,
          .code_end = 122,
          .codes = 128,
          .max_positions = 64};
}

/// Four tokens of prompt, the second and third filled by a picture; an answer of three; the token that ends the turn.
Features row() {
  Features features{.input_ids = {10, 50, 50, 11, 20, 21, 22, 7}};
  features.media.push_back({.places = {1, 2}});
  features.sample.where = "rows.jsonl:3";
  return features;
}
constexpr AnswerSpan kAnswer{.begin = 4, .end = 7};

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "nothing was refused";
}

TEST(SpokenSteps, TokensOfTheAnswerStandBesideCodes) {
  const SpeechSteps steps = spoken_steps(row(), kAnswer, {.speaker = "Ethan", .codes = {5, 6, 7, 8}}, rules());
  //                     prompt         voice first  codes, then the end
  EXPECT_EQ(steps.text, (Ids{10, -1, -1, 11, 901, 20, 21, 22, 910, 911, 911}));
  EXPECT_EQ(steps.sources, (Ids{0, 1, 2, 3, -1, 4, 5, 6, -1, -1, -1}));
  EXPECT_EQ(steps.codes, (Ids{-1, -1, -1, -1, 120, 121, 5, 6, 7, 8, 122}));
  EXPECT_EQ(steps.labels, (Ids{-100, -100, -100, -100, -100, -100, 5, 6, 7, 8, 122}));
  EXPECT_EQ(steps.positions, (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(SpokenSteps, PositionsGoOnBehindThePromptOnAllAxes) {
  Features placed = row();
  placed.positions = {0, 1, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7};  // two axes; the prompt ends at 2 and 3
  const SpeechSteps steps = spoken_steps(placed, kAnswer, {.speaker = "Ethan", .codes = {5}}, rules());
  EXPECT_EQ(steps.positions, (Ids{0, 1, 1, 2, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SpokenSteps, APromptHasWhatLaterStepsAreGivenBehindIt) {
  const SpeechSteps steps = speech_prompt(row(), kAnswer, "Chelsie", rules());
  EXPECT_EQ(steps.text, (Ids{10, -1, -1, 11, 900, 20, 21, 22, 910, 911}));
  EXPECT_EQ(steps.sources, (Ids{0, 1, 2, 3, -1, 4, 5, 6, -1, -1}));
  EXPECT_EQ(steps.codes, (Ids{-1, -1, -1, -1, 120, 121, -1, -1, -1, -1}));
  EXPECT_TRUE(steps.labels.empty());
  EXPECT_EQ(steps.positions, (Ids{0, 1, 2, 3, 4, 5})) << "until the first code is asked for";
}

TEST(SpokenSteps, WhatCannotBeSaidIsNamed) {
  const auto spoken = [](const Speech& speech, AnswerSpan answer = kAnswer) {
    return refusal([&] { (void)spoken_steps(row(), answer, speech, rules()); });
  };
  EXPECT_NE(spoken({.speaker = "Bob", .codes = {1}}).find("expected Chelsie or Ethan, found \"Bob\""),
            std::string::npos);
  EXPECT_NE(spoken({.speaker = "Ethan", .codes = {1, 128}}).find("rows.jsonl:3: field \"speech.codes[1]\""),
            std::string::npos);
  EXPECT_NE(spoken({.speaker = "Ethan", .codes = {121}}).find("expected a code of speech"), std::string::npos)
      << "the code that begins speech is none of it";
  EXPECT_NE(spoken({.speaker = "Ethan", .codes = {1}}, {.begin = 4, .end = 4}).find("an empty one"), std::string::npos);
  EXPECT_NE(spoken({.speaker = "Ethan", .codes = Ids(60, 1)}).find("expected at most 64 steps of speech"),
            std::string::npos);
}

TEST(SpeechOfRow, ItsFormIsChecked) {
  const auto sample = [](const Json& speech) {
    const Json row = {{"query", "Say it."}, {"response", "It."}, {"speech", speech}};
    return sample_from_row(row, "rows.jsonl:1", ".");
  };
  const Sample good = sample({{"speaker", "Ethan"}, {"codes", {3, 4}}});
  ASSERT_TRUE(good.speech);
  EXPECT_EQ(good.speech->speaker, "Ethan");
  EXPECT_EQ(good.speech->codes, (Ids{3, 4}));
  for (const Json& bad :
       {Json("a.wav"), Json{{"speaker", "Ethan"}}, Json{{"speaker", 3}, {"codes", {1}}},
        Json{{"speaker", "Ethan"}, {"codes", Json::array()}}, Json{{"speaker", "Ethan"}, {"codes", {-1}}},
        Json{{"speaker", "Ethan"}, {"codes", {1.5}}}, Json{{"speaker", "Ethan"}, {"codes", {1LL << 40}}},
        Json{{"speaker", "Ethan"}, {"codes", {1}}, {"wav", "a.wav"}}}) {
    EXPECT_NE(refusal([&] { (void)sample(bad); }).find("rows.jsonl:1: field \"speech"), std::string::npos)
        << bad.dump();
  }
}

}  // namespace
}  // namespace lockstep
